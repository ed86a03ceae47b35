//! The daemon, which joins the parts. Whatever blocks has its own thread.
//!
//! `watcher` is the loop that finds servers, and gives each a thread. The thread of a `server` asks the `planner` for a
//! plan, attaches, updates the `watched` server from one `reading` after another, places its probes (`probing`), and
//! publishes it. While its server is calm it waits for the `lookout`. Another thread answers HTTP.
//!
//! Deliberately absent: what the numbers mean (`telemetry`), and how they are exported (`web`).

mod commands;
mod daemon;
mod endings;
mod expired;
pub mod loaded;
mod lookout;
mod memory_parts;
mod pace;
pub mod prepared;
mod probing;
mod reading;
mod recorder;
mod refusals;
mod server;
mod server_log;
mod server_thread;
mod service;
#[cfg(test)]
mod traced_function;
mod watched;
mod watcher;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use evictscope_host::{Exclusion, Matcher};
use evictscope_telemetry::OverheadBudget;
use serde::Deserialize;

pub use self::daemon::run;

/// The probe mode as the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedMode {
    /// For each server by itself, within --overhead-budget: evicting-only at first and under load, every-call while
    /// that is cheap, and evicting calls for part of the time (sampled) if all of them would cost too much
    Auto,
    /// Count and time every call, no-op or not: costs every command that a server executes one to two
    /// microseconds. The budget does not change it
    EveryCall,
    /// Only calls that evict: a server below its limit pays nothing. The budget does not change it
    EvictingOnly,
}

/// The settings of the daemon: the options of `run`, each with its value.
#[derive(Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    pub web_config: Option<PathBuf>,
    pub host_names: Vec<String>,
    pub open_requests: bool,
    pub probe_mode: RequestedMode,
    pub overhead_budget: OverheadBudget,
    pub stall_threshold: Duration,
    pub peers: bool,
    pub process_match: Matcher,
    pub exclusions: Vec<Exclusion>,
    pub debug_dirs: Vec<PathBuf>,
    pub state_dir: PathBuf,
    pub keep_records: u64,
}
