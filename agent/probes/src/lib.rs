//! The BPF programs in the kernel: loading them, attaching them to servers, reading what they count.
//!
//! Start with [`Probes`], which loads the programs, and [`Attachment`], the probes on one server. Every server has one
//! slot in all maps, which are mapped into memory. A probe is attached by file offset to the open executable that the
//! plan was made from. So it works in other mount namespaces and after an upgrade on disk, and no other file is ever
//! probed. Dropping an [`Attachment`] detaches its probes. So does the end of the agent, however it ends: another
//! process holds them ([`LinkKeeper`]).
//!
//! This is the only crate that uses aya, and, with `agent-ebpf`, the only one with `unsafe` code. It decides neither
//! what to probe (`evictscope-plan`) nor when (`evictscope-telemetry`). `build.rs` compiles the programs.

mod attach;
mod attachment;
mod calibration;
mod config;
mod error;
mod exit_code;
#[cfg(test)]
mod expire_cycle;
mod heap;
mod iterator;
mod keeper;
mod kernel_types;
mod left;
mod loading;
mod log;
mod mapped;
mod mappers;
mod maps;
mod multi;
mod obstacle;
mod own;
mod profile;
mod programs;
mod self_probes;
mod signals;
mod sockets;
mod target;
mod trace;

pub use attach::Probes;
pub use attachment::{Attachment, Coverage, Probed, Server};
pub use config::server_config;
pub use error::{OLDER_KERNELS, ProbeError};
pub use exit_code::exit_code;
pub use heap::share_heaps;
pub use keeper::{LinkKeeper, keep};
pub use profile::{Sample, Sampler, Sampling};
pub use signals::take_back_signals;
pub use sockets::{Ports, SocketIterator};
pub use trace::{TraceCosts, TraceCounts, Traced, Tracer, Tracing};
