//! What this program is built from.
//!
//! Packing sets the two variables; without them no commit is named, so that a development build is not redone with each
//! commit.

use std::sync::LazyLock;

/// The version of the crate.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The first digits of the commit, if the program was built to be packed.
pub const COMMIT: Option<&str> = option_env!("EVICTSCOPE_COMMIT");

const COMMIT_DATE: Option<&str> = option_env!("EVICTSCOPE_COMMIT_DATE");

/// What `--version` says: the version with the commit and its day.
pub static LONG: LazyLock<String> = LazyLock::new(|| long(COMMIT.zip(COMMIT_DATE)));

fn long(commit: Option<(&str, &str)>) -> String {
    match commit {
        Some((commit, date)) => format!("{NUMBER} ({commit} {date})"),
        None => format!("{NUMBER} (not a release)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_commit_and_date() {
        assert_eq!(long(Some(("f3094f1b2c3d", "2026-11-23"))), format!("{NUMBER} (f3094f1b2c3d 2026-11-23)"));
        assert_eq!(long(None), format!("{NUMBER} (not a release)"));
    }
}
