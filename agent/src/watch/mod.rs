//! The daemon, which joins the parts. A thread finds servers, plans, attaches, reads the counters and
//! publishes them; another one answers HTTP.
//!
//! `watcher` is the loop. It looks for servers from time to time. In each turn it lets `attach` take
//! on a new server, updates each `watched` server from a `reading`, and publishes all of them.
//!
//! Deliberately absent: what the numbers mean (`telemetry`), and how they are exported (`export`).

mod attach;
mod burst_log;
mod clock;
mod daemon;
mod plans;
mod privileges;
mod reading;
mod service;
mod settings;
#[cfg(test)]
mod traced_function;
mod watched;
mod watcher;

pub use daemon::run;
pub use settings::{RequestedMode, Settings};
