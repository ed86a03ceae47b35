//! Names a server by the port or socket that it listens on.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader};

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use procfs::{ProcError, ProcResult};

use crate::printable::printable;

/// A socket that listens, in the column `Flags` of `/proc/net/unix` (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";
/// A socket of a byte stream, in its column `Type` (`SOCK_STREAM`).
const STREAM: &str = "0001";

/// The cluster bus is at a server's port plus this, unless `cluster-port` says otherwise.
const CLUSTER_BUS_OFFSET: u16 = 10_000;

/// Where a server listens.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// The TCP ports.
    pub ports: Vec<u16>,
    /// The paths of the Unix sockets.
    paths: Vec<String>,
}

impl Listening {
    /// Reads where a process listens.
    pub(crate) fn of(pid: u32) -> ProcResult<Self> {
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
            // There is no such table if IPv6 is switched off.
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
        // procfs cuts a path at its first space, and rejects a table in which a path has a line feed.
        let mut table = BufReader::new(process.open_relative("net/unix")?);
        let mut paths = Vec::new();
        let mut line = Vec::new();
        while table.read_until(b'\n', &mut line)? > 0 {
            let listens = stream_listener(&String::from_utf8_lossy(&line));
            paths.extend(listens.filter(|(inode, _)| sockets.contains(inode)));
            line.clear();
        }
        Ok(Self { ports, paths: certain(paths) })
    }

    /// Returns the name of the server: its TCP port, else the path of its Unix socket, as people may read it; `None` if
    /// it does not listen.
    ///
    /// Of several ports it takes the one in the server's title, else the lowest that is not a cluster bus.
    pub(crate) fn name(&self, title_port: Option<u16>) -> Option<String> {
        let port = choose_port(&self.ports, title_port).map(|port| port.to_string());
        port.or_else(|| self.paths.iter().min().map(|path| printable(path)))
    }
}

/// Returns the inode and path of the socket in a line of `/proc/net/unix`, if it is a listening byte-stream socket with
/// a path: `0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b.sock`.
fn stream_listener(line: &str) -> Option<(u64, String)> {
    let mut rest = line.strip_suffix('\n').unwrap_or(line);
    let mut field = || {
        // A short inode is padded.
        let (field, after) = rest.trim_start_matches(' ').split_once(' ')?;
        rest = after;
        Some(field)
    };
    let (_number, _references, _protocol) = (field()?, field()?, field()?);
    let (flags, kind, _state) = (field()?, field()?, field()?);
    let inode = field()?.parse().ok()?;
    (flags == LISTENS && kind == STREAM).then(|| (inode, rest.to_owned()))
}

/// Returns the paths of sockets that have one. A path may contain a line feed and what looks like another line, so a
/// socket with two paths was given one by somebody else.
fn certain(paths: Vec<(u64, String)>) -> Vec<String> {
    let mut of_socket: HashMap<u64, Vec<String>> = HashMap::new();
    for (inode, path) in paths {
        of_socket.entry(inode).or_default().push(path);
    }
    let alone = |paths: Vec<String>| <[String; 1]>::try_from(paths).ok();
    of_socket.into_values().filter_map(alone).flatten().collect()
}

fn choose_port(ports: &[u16], title_port: Option<u16>) -> Option<u16> {
    if let Some(port) = title_port.filter(|port| ports.contains(port)) {
        return Some(port);
    }
    let is_bus =
        |port: &u16| port.checked_sub(CLUSTER_BUS_OFFSET).is_some_and(|client_port| ports.contains(&client_port));
    ports.iter().copied().filter(|port| !is_bus(port)).min()
}

#[cfg(test)]
mod tests {
    use super::{certain, choose_port, stream_listener};

    #[test]
    fn the_port_is_the_one_for_clients() {
        assert_eq!(choose_port(&[], Some(6379)), None);
        assert_eq!(choose_port(&[16379, 6379], None), Some(6379));
        // With `cluster-port 5000`, only the title tells.
        assert_eq!(choose_port(&[5000, 6379], Some(6379)), Some(6379));
        // A title that the user has set says nothing.
        assert_eq!(choose_port(&[6380, 6379], Some(80)), Some(6379));
    }

    #[test]
    fn a_socket_with_two_paths_has_none() {
        let paths = [(7, "/run/a.sock"), (8, "/run/b.sock"), (7, "6379")];
        let paths = paths.map(|(inode, path)| (inode, path.to_owned()));
        assert_eq!(certain(paths.to_vec()), ["/run/b.sock"]);
    }

    #[test]
    fn the_path_of_a_socket_is_whole() {
        let line = |inode, path| format!("00000000d0c0ffee: 00000002 00000000 00010000 0001 01 {inode} {path}\n");
        for path in ["/run/redis.sock", "/run/a b.sock", " a  b ", "@abstract"] {
            let found = stream_listener(&line("12345", path));
            assert_eq!(found, Some((12345, path.to_owned())));
        }
        let padded = stream_listener(&line("   17", "/run/redis.sock"));
        assert_eq!(padded, Some((17, "/run/redis.sock".to_owned())));
        let listening = line("12345", "/run/redis.sock");
        for (from, to) in [
            ("00010000", "00000000"),
            (" 0001 ", " 0002 "),
            (" 12345 /run/redis.sock", " 12345"),
            ("12345", "x"),
            (&listening, "Num       RefCount Protocol Flags    Type St Inode Path\n"),
            (&listening, "the rest of a path"),
            (&listening, "\n"),
            (&listening, ""),
        ] {
            assert_eq!(stream_listener(&listening.replace(from, to)), None, "{to}");
        }
    }
}
