//! What has to be right before a release can be made.

/// What was found in the checkout.
pub struct Found<'a> {
    /// The version of the crates.
    pub version: &'a str,
    /// Files that differ from the commit, or that git does not know.
    pub changed: Vec<&'a str>,
    /// The tags of the commit.
    pub tags: Vec<&'a str>,
    /// Whether another commit has the tag of this version.
    pub tagged_elsewhere: bool,
    /// The text of CHANGELOG.md.
    pub changelog: &'a str,
}

impl Found<'_> {
    /// Returns the tag that a release of this version has.
    pub fn tag(&self) -> String {
        format!("v{}", self.version)
    }

    /// Returns all that is missing, and what to do about each.
    pub fn missing(&self) -> Vec<String> {
        let (version, tag) = (self.version, self.tag());
        let mut missing = Vec::new();
        if !self.changed.is_empty() {
            let changed = self.changed.join(", ");
            missing.push(format!(
                "the work tree is not clean: commit, remove or stash {changed}"
            ));
        }
        if !has_entry(self.changelog, version) {
            missing.push(format!(
                "CHANGELOG.md has no entry `## [{version}] - YYYY-MM-DD`: say there what changed for users"
            ));
        }
        if !self.tags.contains(&tag.as_str()) {
            let others = self.tags.iter().filter(|other| other.starts_with('v'));
            let others: Vec<_> = others.copied().collect();
            missing.push(match (&others[..], self.tagged_elsewhere) {
                ([], false) => format!(
                    "this commit has no tag {tag}. When all else is right: git tag --annotate {tag} --message 'evictscope {version}'"
                ),
                ([], true) => format!(
                    "another commit has the tag {tag}: check that one out, or raise the version in Cargo.toml"
                ),
                (others, _) => format!(
                    "this commit has the tag {}, but the version in Cargo.toml is {version}",
                    others.join(" and ")
                ),
            });
        }
        missing
    }
}

/// Returns whether there is an entry of this version with its day.
fn has_entry(changelog: &str, version: &str) -> bool {
    let heading = format!("## [{version}] - ");
    changelog
        .lines()
        .filter_map(|line| line.strip_prefix(&heading))
        .any(|date| date.trim().parse::<jiff::civil::Date>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-23\n";

    fn right() -> Found<'static> {
        Found {
            version: "1.2.3",
            changed: Vec::new(),
            tags: vec!["v1.2.3"],
            tagged_elsewhere: false,
            changelog: CHANGELOG,
        }
    }

    #[test]
    fn a_tagged_commit_with_an_entry_lacks_nothing() {
        assert!(right().missing().is_empty());
    }

    #[test]
    fn everything_that_is_missing_is_said_at_once() {
        let found = Found {
            changed: vec!["README.md"],
            tags: Vec::new(),
            changelog: "## [1.2.3] - soon\n",
            ..right()
        };
        let missing = found.missing();
        assert_eq!(missing.len(), 3, "{missing:?}");
        assert!(missing[0].ends_with("README.md"));
        assert!(missing[1].starts_with("CHANGELOG.md has no entry `## [1.2.3] - "));
        assert!(missing[2].contains("git tag --annotate v1.2.3"));
    }

    #[test]
    fn a_tag_of_another_version_or_commit_is_named() {
        let other = Found {
            tags: vec!["v1.3.0"],
            ..right()
        };
        assert!(other.missing()[0].contains("v1.3.0, but the version in Cargo.toml is 1.2.3"));
        let elsewhere = Found {
            tags: Vec::new(),
            tagged_elsewhere: true,
            ..right()
        };
        assert!(elsewhere.missing()[0].starts_with("another commit has the tag v1.2.3"));
    }
}
