//! The settings of the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Deserialize;

use crate::host::Matcher;
use crate::telemetry::OverheadBudget;

/// The probe mode as the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedMode {
    /// Each server for itself: evicting-only at first and under load, every-call while that costs
    /// less than --overhead-budget
    Auto,
    /// Count and time every call, no-op or not: costs every command that a server executes about a
    /// microsecond
    EveryCall,
    /// Only calls that evict: a server below its limit pays nothing
    EvictingOnly,
}

/// The settings of the daemon: every option has its value.
#[derive(Debug)]
pub struct Settings {
    /// The address that HTTP is served on.
    pub listen: SocketAddr,
    /// The file that says how HTTP is protected, if any.
    pub web_config: Option<PathBuf>,
    /// Which eviction calls to probe.
    pub probe_mode: RequestedMode,
    /// The most that every-call mode may cost in probe mode auto.
    pub overhead_budget: OverheadBudget,
    /// Which processes are servers.
    pub process_match: Matcher,
    /// The directories in which debug files are looked for first.
    pub debug_dirs: Vec<PathBuf>,
}
