//! Arguments that several subcommands have.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evictscope_records::{Record, RecordId, Store, StoreError, read_record};

/// Where records are.
#[derive(clap::Args)]
pub struct StateDir {
    /// The directory that the agent keeps its records in [default: $STATE_DIRECTORY, else /var/lib/evictscope]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateDir {
    pub fn store(&self) -> Store {
        Store::at(&self.state_dir.clone().unwrap_or_else(usual_state_dir))
    }

    #[cfg(test)]
    pub fn of(directory: &Path) -> Self {
        Self { state_dir: Some(directory.to_owned()) }
    }

    /// Reads the record with this name, or in this file.
    pub fn record(&self, named: &str) -> Result<Record, StoreError> {
        match RecordId::try_from(named.to_owned()) {
            Ok(id) if !Path::new(named).exists() => self.store().read(&id),
            _ => read_record(Path::new(named)),
        }
    }
}

/// Returns the directory that systemd made for this service (`StateDirectory=`), or else the usual one.
pub fn usual_state_dir() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").filter(|given| !given.is_empty());
    given.unwrap_or_else(|| "/var/lib/evictscope".into()).into()
}

/// Where debug files are.
#[derive(clap::Args)]
pub struct DebugDirs {
    /// Look for separate debug files below DIR (.build-id/xx/yyyy.debug, or the path of the executable) before
    /// /usr/lib/debug; may be given several times
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
}

/// Parses a duration with its unit.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let parsed = units.into_iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * seconds)
    });
    (parsed.filter(|seconds| (1e-6..=60.0).contains(seconds)).map(Duration::from_secs_f64))
        .ok_or("not a duration from 1us to 60s: write 100us or 1ms, for example")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_duration;

    #[test]
    fn durations_have_a_unit() {
        for (text, ns) in [("100us", 100_000), ("1.5 ms", 1_500_000), ("2s", 2_000_000_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["1", "", "ms", "-1ms", "1ns", "2m", "100s", "nans"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
