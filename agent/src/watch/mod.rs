//! The daemon: the parts joined. A thread finds servers, plans, attaches, reads what is counted and
//! publishes it; another one answers HTTP.
//!
//! `watcher` is the loop. In each turn it looks for servers from time to time, lets `attach` take on
//! one that is new, has each `watched` server take in a `reading`, and hands all of them to `publish`.
//!
//! Deliberately absent: what the numbers mean (`telemetry`), and how they are exported (`export`).

mod attach;
mod burst_log;
mod clock;
mod daemon;
mod debug_files;
mod plans;
mod privileges;
mod publish;
mod reading;
mod service;
mod settings;
#[cfg(test)]
mod traced_function;
mod watched;
mod watcher;

pub use daemon::run;
pub use debug_files::DebugFiles;
pub use settings::{RequestedMode, Settings};
