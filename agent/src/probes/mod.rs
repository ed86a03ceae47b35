//! The BPF programs in the kernel: loading them, attaching them to servers, reading what they count.
//! The only user of aya.
//!
//! Every server has one slot in all maps. A probe is attached by file offset through
//! `/proc/PID/exe`, which works in other mount namespaces and after an upgrade on disk. Dropping
//! an [`Attachment`] detaches; so does the end of the agent, however it ends, as the kernel then
//! closes the file descriptors.
//!
//! Deliberately absent: choosing the probe mode, which `telemetry` does.

mod attach;
mod calibration;
mod config;
mod error;
mod kernel;
mod log;
mod maps;
mod multi;
mod programs;
mod target;

pub use attach::Probes;
pub use config::server_config;
pub use error::ProbeError;
pub use target::{Attachment, Target};
