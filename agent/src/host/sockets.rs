//! Names a server by the port or socket that it listens on.

use std::collections::HashSet;

use procfs::net::{TcpState, UnixState};
use procfs::process::{FDTarget, Process};
use procfs::{ProcError, ProcResult};

/// From the kernel's `net.h`.
const SOCK_STREAM: u16 = 1;

/// The cluster bus is at a server's port plus this, unless `cluster-port` says otherwise.
const CLUSTER_BUS_OFFSET: u16 = 10_000;

/// Where a server listens.
#[derive(Debug, Default)]
pub(super) struct Listening {
    /// The TCP ports.
    pub ports: Vec<u16>,
    /// The paths of the Unix sockets.
    paths: Vec<String>,
}

impl Listening {
    /// Reads where a process listens.
    pub(super) fn of(pid: u32) -> ProcResult<Self> {
        let process = Process::new(pid.cast_signed())?;
        let sockets: HashSet<u64> = process
            .fd()?
            .filter_map(|fd| match fd.ok()?.target {
                FDTarget::Socket(inode) => Some(inode),
                _ => None,
            })
            .collect();
        if sockets.is_empty() {
            return Ok(Self::default());
        }
        let tcp6 = match process.tcp6() {
            // There is no such table where IPv6 is switched off.
            Err(ProcError::NotFound(_)) => Vec::new(),
            table => table?,
        };
        let ports = process
            .tcp()?
            .into_iter()
            .chain(tcp6)
            .filter(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode))
            .map(|entry| entry.local_address.port())
            .collect();
        let unix = match process.unix() {
            Err(ProcError::Io(error, path)) if error.raw_os_error().is_some() => {
                return Err(ProcError::Io(error, path));
            }
            // Any process may bind a socket to a path that makes the whole table unreadable; a server
            // without a port then goes by its pid.
            table => table.unwrap_or_default(),
        };
        let paths = unix
            .into_iter()
            // Only a listening socket has a path and no peer.
            .filter(|entry| {
                entry.socket_type == SOCK_STREAM
                    && entry.state == UnixState::UNCONNECTED
                    && sockets.contains(&entry.inode)
            })
            .filter_map(|entry| Some(entry.path?.to_string_lossy().into_owned()))
            .collect();
        Ok(Self { ports, paths })
    }

    /// Returns the name of the server: its TCP port, else the path of its Unix socket; `None` where it does
    /// not listen.
    ///
    /// Of several ports it takes the one in the server's title, else the lowest one that is not a cluster
    /// bus.
    pub(super) fn name(&self, title_port: Option<u16>) -> Option<String> {
        let port = choose_port(&self.ports, title_port).map(|port| port.to_string());
        port.or_else(|| self.paths.iter().min().cloned())
    }
}

fn choose_port(ports: &[u16], title_port: Option<u16>) -> Option<u16> {
    if let Some(port) = title_port.filter(|port| ports.contains(port)) {
        return Some(port);
    }
    let is_bus = |port: &u16| {
        port.checked_sub(CLUSTER_BUS_OFFSET)
            .is_some_and(|client_port| ports.contains(&client_port))
    };
    ports.iter().copied().filter(|port| !is_bus(port)).min()
}

#[cfg(test)]
mod tests {
    use super::choose_port;

    #[test]
    fn the_port_is_the_one_for_clients() {
        assert_eq!(choose_port(&[], Some(6379)), None);
        assert_eq!(choose_port(&[16379, 6379], None), Some(6379));
        // With `cluster-port 5000`, only the title tells.
        assert_eq!(choose_port(&[5000, 6379], Some(6379)), Some(6379));
        // A title that the user has set says nothing.
        assert_eq!(choose_port(&[6380, 6379], Some(80)), Some(6379));
    }
}
