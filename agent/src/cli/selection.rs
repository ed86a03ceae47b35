//! The option that says which processes are servers.

use crate::host::{DEFAULT_PATTERN, Matcher, MatcherError};

/// Which processes count as servers.
#[derive(clap::Args)]
pub struct Selection {
    /// Regular expression: a process whose command name, executable's name or argument 0 it
    /// matches is a server (sentinels and forked children never are)
    #[arg(long, value_name = "REGEX", default_value = DEFAULT_PATTERN, value_parser = parse_pattern)]
    pub process_match: Matcher,
}

/// Parses the option's value.
pub fn parse_pattern(pattern: &str) -> Result<Matcher, MatcherError> {
    Matcher::new(pattern)
}
