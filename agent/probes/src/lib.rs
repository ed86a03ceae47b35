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

#![allow(missing_docs, reason = "only this workspace uses it: a name and a type say what most of these are")]

mod attachment;
mod bpf;
mod config;
mod error;
mod keeper;
mod kernel_types;
mod lock;
mod mappers;
mod maps;
mod probes;
mod profile;
mod programs;
mod self_probes;
mod sockets;
mod system;
mod target;
mod trace;

pub use attachment::{Attachment, Coverage, PlannedServer, Probed};
pub use config::server_config;
pub use error::{OLDER_KERNELS, ProbeError};
pub use keeper::{LinkKeeper, keep};
pub use probes::Probes;
pub use profile::{Sampler, Sampling, StackSample};
pub use sockets::{Ports, SocketIterator};
pub use system::{exit_code, share_heaps, take_back_signals};
pub use trace::{TraceCosts, TraceCounts, TraceJob, Tracer, Tracing};
