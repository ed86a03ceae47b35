//! Looks at the connections of a server: which have bytes that the server has not read.
//!
//! The kernel walks over the open files of one process, and calls a program for each, in the thread that reads: it
//! costs the server nothing.

mod records;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use evictscope_telemetry::SocketLook;

pub use records::Ports;
use records::Ticks;

use super::bpf::{load_iterator, open_iterator};
use super::error::ProbeError;
use super::kernel_types;

const PROGRAM: &str = "socket_look";
/// The size of the kernel's buffer for a reader, bytes; it gives no more at once.
const BUFFER: usize = 32 << 10;

/// The loaded program. Clones share it.
#[derive(Clone)]
pub struct SocketIterator {
    program: Arc<OwnedFd>,
    /// The offset of the time for which a thread has waited for a CPU, as [`Probes::load`](super::Probes::load) takes
    /// it.
    pub run_delay: Option<u32>,
    /// Why it does not tell peers although it should.
    pub no_peers: Option<Arc<ProbeError>>,
}

impl SocketIterator {
    /// Loads the program into the kernel. `with_peers` is whether it is to say who the other sides of connections are,
    /// and what they have not taken. If this kernel cannot say that, it says everything else.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not describe itself (no BTF), is older than Linux 6.1, does not allow it, or refuses
    /// the program.
    pub fn load(with_peers: bool) -> Result<Self, ProbeError> {
        let offsets = kernel_types::of_kernel()?;
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-sockets"));
        let ticks = [Ticks::now().per_second()];
        let load = |peers: bool| {
            let globals: [(&str, &[u32]); 3] =
                [("OFFSETS", &offsets.sockets), ("TICKS_PER_SECOND", &ticks), ("LOOKS_AT_PEERS", &[u32::from(peers)])];
            load_iterator(object, PROGRAM, "task_file", &globals)
        };
        let (program, no_peers) = match (with_peers, offsets.no_peers) {
            (true, None) => match load(true) {
                Ok(program) => (program, None),
                Err(error) => (load(false)?, Some(error)),
            },
            (true, lacking) => (load(false)?, lacking),
            (false, _) => (load(false)?, None),
        };
        Ok(Self { program: Arc::new(program), run_delay: offsets.run_delay, no_peers: no_peers.map(Arc::new) })
    }

    /// Looks at the connections of the process `pid`: those in the file table of its main thread. `ports` are kept for
    /// the next look.
    ///
    /// # Errors
    ///
    /// Returns "not found" if the process has ended; otherwise the kernel's error.
    pub fn look(&self, pid: u32, ports: &mut Ports) -> io::Result<SocketLook> {
        let mut iterator = File::from(open_iterator(self.program.as_fd(), pid)?);
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
}
