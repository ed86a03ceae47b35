//! The options of `evictscope run`, wherever they are given: on the command line or in the configuration file, which
//! has the same options by the same names.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Error;
use bytesize::ByteSize;
use evictscope_host::{DEFAULT_PATTERN, Exclusion, Matcher};
use evictscope_telemetry::{OverheadBudget, STALL_THRESHOLD};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::cli::state_dir::usual_state_dir;
use crate::text::parse_duration;
use crate::watch::{RequestedMode, Settings};

/// The default address of HTTP, which other hosts cannot reach.
const DEFAULT_LISTEN: &str = "127.0.0.1:9739";
const DEFAULT_BUDGET: &str = "1%";
const DEFAULT_KEPT: &str = "512MiB";

/// The options from one place. Options that it does not give are empty.
///
/// The help texts repeat the defaults, because clap would treat its own as given; a test compares them.
#[derive(Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Address and port to serve HTTP on [default: 127.0.0.1:9739]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    #[serde(deserialize_with = "address")]
    listen: Option<SocketAddr>,
    /// TLS and passwords for HTTP, in the format of Prometheus' exporter-toolkit; taken up again
    /// when it changes [default: neither]
    #[arg(long, value_name = "FILE")]
    web_config: Option<PathBuf>,
    /// Without --web-config: answer requests for this host name too, besides those by address, for localhost, and for
    /// the host's own name; may be given several times
    #[arg(long, value_name = "NAME")]
    host_name: Option<Vec<String>>,
    /// On an address that other hosts reach: make records and take profiles also for requests without a password or
    /// certificate. They cost a server some of its time [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    open_requests: Option<bool>,
    /// Which eviction calls to probe [default: auto]
    #[arg(long, value_enum)]
    probe_mode: Option<RequestedMode>,
    /// In probe mode auto: the most that the probes may cost, as a share of a server's main thread (mean of 10 s), such
    /// as 1% or 0.01. If evicting calls alone would cost more, they are observed for part of the time [default: 1%]
    #[arg(long, value_name = "SHARE")]
    #[serde(deserialize_with = "parsed")]
    overhead_budget: Option<OverheadBudget>,
    /// How long a request waits before its client is stalled, such as 100ms or 1s [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[serde(deserialize_with = "duration")]
    stall_threshold: Option<Duration>,
    /// Look at who the clients are, and keep their addresses in records: whose requests wait, and who does not read
    /// answers [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    peers: Option<bool>,
    /// Regular expression: a process whose command name, executable's name or argument 0 it
    /// matches is a server (sentinels and forked children never are)
    /// [default: ^(redis-server|valkey-server)$]
    #[arg(long, value_name = "REGEX")]
    #[serde(deserialize_with = "parsed")]
    process_match: Option<Matcher>,
    /// Leave servers alone: no probe, no reading, no series. By a TCP port that they listen on, the user they run as
    /// (name or number), or at least 12 digits of their container's id; may be given several times
    #[arg(long, value_name = "port=N|user=NAME|container=ID")]
    #[serde(deserialize_with = "all_parsed")]
    exclude: Option<Vec<Exclusion>>,
    /// Look for separate debug files below DIR (.build-id/xx/yyyy.debug, or the path of the
    /// executable) before /usr/lib/debug; may be given several times
    #[arg(long, value_name = "DIR")]
    debug_dir: Option<Vec<PathBuf>>,
    /// Keep records of bursts in DIR, which nothing else may write
    /// [default: $STATE_DIRECTORY, which systemd sets, else /var/lib/evictscope]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The most disk space that all of that may take, such as 512MiB or 2GiB; the oldest goes first. 0 keeps nothing
    /// [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "parsed")]
    keep_records: Option<ByteSize>,
}

impl Options {
    /// Returns these options, and takes those that are not given from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            web_config: self.web_config.or(other.web_config),
            host_name: self.host_name.or(other.host_name),
            open_requests: self.open_requests.or(other.open_requests),
            probe_mode: self.probe_mode.or(other.probe_mode),
            overhead_budget: self.overhead_budget.or(other.overhead_budget),
            stall_threshold: self.stall_threshold.or(other.stall_threshold),
            peers: self.peers.or(other.peers),
            process_match: self.process_match.or(other.process_match),
            exclude: self.exclude.or(other.exclude),
            debug_dir: self.debug_dir.or(other.debug_dir),
            state_dir: self.state_dir.or(other.state_dir),
            keep_records: self.keep_records.or(other.keep_records),
        }
    }

    /// Returns the same options, with relative paths based on `directory`.
    pub fn relative_to(self, directory: &Path) -> Self {
        let absolute = |path: PathBuf| directory.join(path);
        Self {
            web_config: self.web_config.map(absolute),
            debug_dir: self.debug_dir.map(|paths| paths.into_iter().map(absolute).collect()),
            state_dir: self.state_dir.map(absolute),
            ..self
        }
    }

    /// Returns the settings, with defaults for what is not given. Fails only if a default in this file is wrong, which
    /// a test rules out.
    pub fn settings(self) -> anyhow::Result<Settings> {
        Ok(Settings {
            listen: self.listen.map_or_else(|| DEFAULT_LISTEN.parse(), Ok)?,
            web_config: self.web_config,
            host_names: self.host_name.unwrap_or_default(),
            open_requests: self.open_requests.unwrap_or_default(),
            probe_mode: self.probe_mode.unwrap_or(RequestedMode::Auto),
            overhead_budget: self.overhead_budget.map_or_else(|| DEFAULT_BUDGET.parse(), Ok)?,
            stall_threshold: self.stall_threshold.unwrap_or(STALL_THRESHOLD),
            peers: self.peers.unwrap_or(true),
            process_match: self.process_match.map_or_else(|| DEFAULT_PATTERN.parse(), Ok).map_err(Error::msg)?,
            exclusions: self.exclude.unwrap_or_default(),
            debug_dirs: self.debug_dir.unwrap_or_default(),
            state_dir: self.state_dir.unwrap_or_else(usual_state_dir),
            keep_records: (self.keep_records.map_or_else(|| DEFAULT_KEPT.parse(), Ok).map_err(Error::msg)?).as_u64(),
        })
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(
        |_| "not an IP address with a port: write 127.0.0.1:9739, or 0.0.0.0:9739 to be reached from other hosts",
    )
}

/// Parses an address in the configuration file as on the command line.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    parse_address(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// Parses a duration in the configuration file as on the command line.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    parse_duration(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// Parses a text in the configuration file as on the command line.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// Parses a list of texts in the configuration file, each as on the command line.
fn all_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::Options;

    fn command() -> Command {
        Options::augment_args(Command::new("run"))
    }

    #[test]
    fn the_help_names_the_defaults() -> anyhow::Result<()> {
        let defaults = Options::default().settings()?;
        let text = command().render_long_help().to_string();
        let help = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for default in [
            defaults.listen.to_string().as_str(),
            "auto",
            super::DEFAULT_BUDGET,
            super::DEFAULT_PATTERN,
            super::DEFAULT_KEPT,
        ] {
            assert!(help.contains(&format!("[default: {default}]")), "{help}");
        }
        Ok(())
    }

    #[test]
    fn the_file_for_kubernetes_listens_where_the_chart_looks() -> anyhow::Result<()> {
        let values = include_str!("../../../../packaging/helm/evictscope/values.yaml");
        let (_, rest) = values.split_once("\nconfig: |\n").unwrap_or_default();
        let indented = |line: &&str| line.is_empty() || line.starts_with("  ");
        let lines: Vec<_> = rest.lines().take_while(indented).map(str::trim).collect();
        let options: Options = toml::from_str(&lines.join("\n"))?;
        assert_eq!(options.settings()?.listen.to_string(), "0.0.0.0:9739");
        Ok(())
    }

    #[test]
    fn the_packaged_file_names_every_option_and_its_default() -> anyhow::Result<()> {
        let packaged = include_str!("../../../../packaging/config.toml");
        let defaults = format!("{:?}", Options::default().settings()?);
        let as_shipped: Options = toml::from_str(packaged)?;
        assert_eq!(format!("{:?}", as_shipped.settings()?), defaults);

        // As a user would write it: without the comment marks before the options.
        let mut uncommented = String::new();
        for line in packaged.lines() {
            let option = line
                .strip_prefix('#')
                .filter(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()) && rest.contains(" = "));
            uncommented.push_str(option.unwrap_or(line));
            uncommented.push('\n');
        }
        let all: Options = toml::from_str(&uncommented)?;
        assert_eq!(format!("{:?}", all.settings()?), defaults);

        let documented = include_str!("../../../../docs/CONFIGURATION.md");
        for option in command().get_arguments() {
            let name = option.get_long().unwrap_or_default();
            assert!(packaged.contains(&format!("#{name} = ")) || packaged.contains(&format!("# {name} = ")), "{name}");
            assert!(documented.contains(&format!("`{name}`")), "{name}");
        }
        Ok(())
    }
}
