//! Looks at the connections of a server: which have bytes that the server has not read.
//!
//! The kernel walks over the open files of one process, and calls a program for each, in the thread that reads: it
//! costs the server nothing.

mod ports;
mod records;
#[cfg(test)]
mod tests;
mod ticks;

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aya::programs::Iter;
use aya::{Btf, Ebpf, EbpfLoader};
use evictscope_telemetry::SocketLook;
use ticks::Ticks;

pub use ports::Ports;

use super::error::ProbeError;
use super::heap::give_back;
use super::iterator::{self, iterator};
use super::kernel_types;

const PROGRAM: &str = "socket_look";
/// The size of the kernel's buffer for a reader, bytes; it gives no more at once.
const BUFFER: usize = 32 << 10;

/// The loaded program. Clones share it.
#[derive(Clone)]
pub struct SocketIterator(Arc<Loaded>);

struct Loaded {
    /// Keeps the program and its table of offsets.
    ebpf: Ebpf,
    run_delay: Option<u32>,
}

impl SocketIterator {
    /// Loads the program into the kernel.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not describe itself (no BTF), is older than Linux 6.1, does not allow it, or refuses
    /// the program.
    pub fn load() -> Result<Self, ProbeError> {
        let offsets = kernel_types::of_kernel()?;
        let btf = Btf::from_sys_fs().map_err(|error| ProbeError::NoBtf(error.to_string()))?;
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-sockets"));
        let mut loader = EbpfLoader::new();
        let loader = loader.btf(Some(&btf));
        let ticks = Ticks::now().per_second();
        let loader = loader.override_global("OFFSETS", &offsets.sockets[..], true);
        let loader = loader.override_global("TICKS_PER_SECOND", &ticks, true);
        let ebpf = iterator::load(loader, object, PROGRAM, "task_file", &btf)?;
        drop(btf);
        give_back();
        let run_delay = offsets.run_delay;
        Ok(Self(Arc::new(Loaded { ebpf, run_delay })))
    }

    /// Returns the offset of the time for which a thread has waited for a CPU, as [`Probes::load`](super::Probes::load)
    /// takes it.
    pub fn run_delay(&self) -> Option<u32> {
        self.0.run_delay
    }

    /// Looks at the connections of the process `pid`: those in the file table of its main thread. `ports` are kept for
    /// the next look.
    ///
    /// # Errors
    ///
    /// Returns "not found" if the process has ended; otherwise the kernel's error.
    pub fn look(&self, pid: u32, ports: &mut Ports) -> io::Result<SocketLook> {
        let mut iterator = File::from(self.iterator(pid)?);
        let mut bytes = vec![0; BUFFER];
        let mut len = 0;
        loop {
            bytes.resize(len + BUFFER, 0);
            match iterator.read(&mut bytes[len..]) {
                Ok(0) => break,
                Ok(read) => len += read,
                // It has gone through a million files, and found nothing.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        records::look(&bytes[..len], Ticks::now(), ports)
    }

    /// Returns an iterator over the files of the process.
    fn iterator(&self, pid: u32) -> io::Result<OwnedFd> {
        let program = self.0.ebpf.program(PROGRAM);
        let program: &Iter = program.ok_or(ErrorKind::NotFound)?.try_into().map_err(io::Error::other)?;
        let program = program.fd().map_err(io::Error::other)?;
        iterator(program.as_fd(), pid)
    }
}
