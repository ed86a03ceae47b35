//! Looks at a server's connections when that is due.

use std::time::Duration;

use evictscope_model::Member;
use evictscope_probes::{Ports, SocketIterator};
use evictscope_telemetry::{LookPace, Snapshot, SocketLook};
use rustix::time::{ClockId, clock_gettime};

/// The connections of one server.
pub struct Sockets {
    pid: u32,
    /// `None` if this kernel cannot look.
    iterator: Option<SocketIterator>,
    ports: Ports,
    pace: LookPace,
    /// Whether a look has failed, and that was logged.
    has_failed: bool,
}

impl Sockets {
    /// Returns the connections of a process.
    pub fn new(pid: u32, iterator: Option<SocketIterator>) -> Self {
        Self { pid, iterator, ports: Ports::default(), pace: LookPace::default(), has_failed: false }
    }

    /// Looks, if that is due at a reading. `is_pressing` says whether the server evicts, or requests wait.
    pub fn look(&mut self, now: &Snapshot, is_pressing: bool) -> Option<SocketLook> {
        let iterator = self.iterator.as_ref()?;
        if !self.pace.is_due(now, is_pressing) {
            return None;
        }
        if let Some(members) = &now.members {
            let is_cluster = members.get(Member::ClusterEnabled);
            self.ports.is_cluster = is_cluster.map(|enabled| enabled != 0);
            let bus = members.get(Member::ClusterPort).filter(|port| *port != 0);
            self.ports.bus = bus.and_then(|port| u16::try_from(port).ok());
        }
        let begun = own_cpu_time();
        let looked = iterator.look(self.pid, &mut self.ports);
        let cost = own_cpu_time().saturating_sub(begun);
        self.pace.looked(now.at, cost);
        match looked {
            Ok(look) => {
                self.has_failed = false;
                Some(look)
            }
            // The next reading says so.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let pid = self.pid;
                    tracing::warn!(pid, "how long its clients wait cannot be seen: {error}");
                }
                None
            }
        }
    }
}

/// Returns the CPU time of this thread.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
