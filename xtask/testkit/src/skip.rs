//! Tests that cannot run everywhere.

use anyhow::{Result, bail};

/// Returns whether this runs in CI, where every test has to run.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Says why a test is skipped. Fails in CI, where nothing may be skipped.
pub fn skip(reason: &str) -> Result<()> {
    if in_ci() {
        bail!("in CI nothing may be skipped: {reason}");
    }
    eprintln!("skipped: {reason}");
    Ok(())
}
