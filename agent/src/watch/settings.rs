//! What the daemon is asked to do.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Deserialize;

use super::debug_files::DebugFiles;
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

/// What the daemon is to do: every option has its value.
#[derive(Debug)]
pub struct Settings {
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// The file that says how HTTP is protected, where there is one.
    pub web_config: Option<PathBuf>,
    /// Which eviction calls to probe.
    pub probe_mode: RequestedMode,
    /// What every-call mode may cost, in probe mode auto.
    pub overhead_budget: OverheadBudget,
    /// Which processes are servers.
    pub process_match: Matcher,
    /// Where debug files are.
    pub debug_files: DebugFiles,
}
