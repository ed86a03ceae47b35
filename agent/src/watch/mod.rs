//! The daemon, which joins the parts. Whatever blocks has its own thread.
//!
//! `watcher` is the loop that finds servers, and gives each a thread. The thread of a `server` asks the `planner` for a
//! plan, attaches, updates the `watched` server from one `reading` after another, places its probes (`probing`), and
//! publishes it. While its server is calm it waits for the `lookout`. Another thread answers HTTP.
//!
//! Deliberately absent: what the numbers mean (`telemetry`), and how they are exported (`web`).

mod daemon;
mod endings;
mod expired;
pub mod loaded;
mod lookout;
mod main_thread;
mod not_counted;
mod pace;
pub mod prepared;
pub mod privileges;
mod probing;
mod reading;
mod recorder;
mod refusals;
mod server;
mod server_log;
mod server_thread;
mod service;
mod settings;
mod sockets;
mod stop;
#[cfg(test)]
mod traced_function;
mod watched;
mod watcher;

pub use daemon::run;
pub use settings::{RequestedMode, Settings};
