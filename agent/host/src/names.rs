//! What a server is called: by the port or socket that it listens on, as people may read it, and by its label.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader};

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use procfs::{ProcError, ProcResult};

/// A socket that listens, in the column `Flags` of `/proc/net/unix` (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";
/// A socket of a byte stream, in its column `Type` (`SOCK_STREAM`).
const STREAM: &str = "0001";

/// The cluster bus is at a server's port plus this, unless `cluster-port` says otherwise.
const CLUSTER_BUS_OFFSET: u16 = 10_000;

/// Where a server listens.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    pub ports: Vec<u16>,
    paths: Vec<String>,
}

impl Listening {
    pub(crate) fn of(pid: u32) -> ProcResult<Self> {
        let process = Process::new(pid.cast_signed())?;
        let inode = |target| if let FDTarget::Socket(inode) = target { Some(inode) } else { None };
        let sockets: HashSet<u64> = process.fd()?.filter_map(|fd| inode(fd.ok()?.target)).collect();
        if sockets.is_empty() {
            return Ok(Self::default());
        }
        let tcp6 = match process.tcp6() {
            // There is no such table if IPv6 is switched off.
            Err(ProcError::NotFound(_)) => Vec::new(),
            table => table?,
        };
        let listeners = (process.tcp()?.into_iter().chain(tcp6))
            .filter(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode));
        let ports = listeners.map(|entry| entry.local_address.port()).collect();
        // procfs cuts a path at its first space, and rejects a table in which a path has a line feed.
        let mut table = BufReader::new(process.open_relative("net/unix")?);
        let mut paths = Vec::new();
        let mut line = Vec::new();
        while table.read_until(b'\n', &mut line)? > 0 {
            let listener = stream_listener(&String::from_utf8_lossy(&line));
            paths.extend(listener.filter(|(inode, _)| sockets.contains(inode)));
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
    of_socket.into_values().filter_map(|paths| <[String; 1]>::try_from(paths).ok()).flatten().collect()
}

fn choose_port(ports: &[u16], title_port: Option<u16>) -> Option<u16> {
    if let Some(port) = title_port.filter(|port| ports.contains(port)) {
        return Some(port);
    }
    let is_bus = |port: &u16| port.checked_sub(CLUSTER_BUS_OFFSET).is_some_and(|client| ports.contains(&client));
    ports.iter().copied().filter(|port| !is_bus(port)).min()
}

/// Returns a name on one line, without what a terminal obeys or does not show: each control character, and each that
/// turns the direction of writing or has no width, is written as in JSON: `\u001b`.
pub fn printable(name: &str) -> String {
    let escaped = |letter: char| format!("\\u{:04x}", u32::from(letter));
    name.chars().map(|letter| if is_printable(letter) { letter.into() } else { escaped(letter) }).collect()
}

fn is_printable(letter: char) -> bool {
    let is_mark = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    let is_hidden = is_mark || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}');
    !letter.is_control() && !is_hidden
}

/// A server that has no label yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewServer<'a> {
    pub pid: u32,
    /// Its port, else the path of its socket, else `pid-N`.
    pub name: &'a str,
    /// The first digits of the id of the container that it is in.
    pub container: Option<&'a str>,
    /// The label that it had before the agent was restarted.
    pub had: Option<&'a str>,
}

/// Returns the labels of new servers, in their order; `live` are the names and labels of the servers that already run.
///
/// A label is the server's name. If several servers, new or live, have that name, those in a container get `@` and the
/// container's id appended. A label that is taken gets `@pid` appended: as long as all pids differ, all labels do.
/// With two equal ones, Prometheus would refuse the whole scrape.
///
/// A server keeps its label for life: the one that it had before, unless that is taken.
pub fn labels(new: &[NewServer<'_>], live: &[(&str, &str)]) -> Vec<String> {
    let mut taken: HashSet<String> = live.iter().map(|(_, label)| (*label).to_owned()).collect();
    // These first, so that no other server gets their labels.
    let mut is_free = |label: &&str| taken.insert((*label).to_owned());
    let kept: Vec<Option<&str>> = new.iter().map(|server| server.had.filter(&mut is_free)).collect();
    let mut given = Vec::with_capacity(new.len());
    for (server, kept) in new.iter().zip(kept) {
        if let Some(label) = kept {
            given.push(label.to_owned());
            continue;
        }
        let of_new = new.iter().filter(|other| other.name == server.name).count();
        let is_shared = of_new > 1 || live.iter().any(|(name, _)| *name == server.name);
        let mut label = server.name.to_owned();
        if let Some(id) = server.container.filter(|_| is_shared) {
            label += &format!("@{id}");
        }
        let with_pid = format!("@{}", server.pid);
        // A socket's path may look like a label that already has an id or a pid.
        if server.name.contains('@') {
            label += &with_pid;
        }
        // Once is enough, unless the labels that servers had were made by something else.
        while !taken.insert(label.clone()) {
            label += &with_pid;
        }
        given.push(label);
    }
    given
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{NewServer, certain, choose_port, labels, printable, stream_listener};

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
        let paths = [(7, "/run/a.sock"), (8, "/run/b.sock"), (7, "6379")].map(|(inode, path)| (inode, path.to_owned()));
        assert_eq!(certain(paths.to_vec()), ["/run/b.sock"]);
    }

    #[test]
    fn the_path_of_a_socket_is_whole() {
        let line = |inode, path| format!("00000000d0c0ffee: 00000002 00000000 00010000 0001 01 {inode} {path}\n");
        for path in ["/run/redis.sock", "/run/a b.sock", " a  b ", "@abstract"] {
            assert_eq!(stream_listener(&line("12345", path)), Some((12345, path.to_owned())));
        }
        assert_eq!(stream_listener(&line("   17", "/run/redis.sock")), Some((17, "/run/redis.sock".to_owned())));
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

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        for (name, shown) in [
            ("/run/redis é 漢.sock", "/run/redis é 漢.sock"),
            ("a\u{1b}[2Jb\u{7}c", "a\\u001b[2Jb\\u0007c"),
            ("a\nb\rc\u{7f}\u{9b}31m", "a\\u000ab\\u000dc\\u007f\\u009b31m"),
            ("a\u{202e}b\u{2066}c\u{200b}", "a\\u202eb\\u2066c\\u200b"),
        ] {
            assert_eq!(printable(name), shown);
            assert_eq!(printable(shown), shown, "it stays the same");
        }
    }

    const A: Option<&str> = Some("3601745b3bd5");
    const B: Option<&str> = Some("9f2c1b7a8e6d");

    /// A server as a scan finds it: pid, name and container.
    type Found<'a> = (u32, &'a str, Option<&'a str>);

    /// Servers with their labels by pid, as they come and go.
    #[derive(Default)]
    struct Live<'a>(BTreeMap<u32, (Found<'a>, String)>);

    impl<'a> Live<'a> {
        /// Finds these servers, scan by scan.
        fn after(scans: &[&[Found<'a>]]) -> Self {
            let mut live = Self::default();
            scans.iter().for_each(|new| live.start(new));
            live
        }

        /// Starts servers that the same scan finds.
        fn start(&mut self, new: &[Found<'a>]) {
            self.find(new, &BTreeMap::new());
        }

        /// Finds servers, some of which had a label before, by pid.
        fn find(&mut self, new: &[Found<'a>], had: &BTreeMap<u32, String>) {
            let called = new.iter().map(|(pid, name, container)| NewServer {
                pid: *pid,
                name,
                container: *container,
                had: had.get(pid).map(String::as_str),
            });
            let live: Vec<_> = self.0.values().map(|((_, name, _), label)| (*name, label.as_str())).collect();
            let given = labels(&called.collect::<Vec<_>>(), &live);
            for (server, label) in new.iter().zip(given) {
                self.0.insert(server.0, (*server, label));
            }
        }

        /// Restarts the agent, which finds all servers at once, and these too.
        fn restart_agent(&mut self, new: &[Found<'a>]) {
            let before = std::mem::take(&mut self.0);
            let all: Vec<_> = before.values().map(|(server, _)| *server).collect();
            let had = before.into_iter().map(|(pid, (_, label))| (pid, label));
            self.find(&[new, &all].concat(), &had.collect());
        }

        fn labels(&self) -> Vec<&str> {
            self.0.values().map(|(_, label)| label.as_str()).collect()
        }
    }

    #[test]
    fn a_later_server_with_the_same_name_gets_its_pid_and_one_that_ends_renames_no_other() {
        let mut live = Live::after(&[
            &[(10, "6379", None)],
            &[(11, "6379", None)],
            &[(12, "6379", None), (13, "6380", None)],
            &[(14, "/run/a@6379.sock", None)],
        ]);
        let labels = ["6379", "6379@11", "6379@12", "6380", "/run/a@6379.sock@14"];
        assert_eq!(live.labels(), labels);
        live.0.remove(&10);
        assert_eq!(live.labels(), labels[1..]);
        live.start(&[(15, "6379", None)]);
        assert_eq!(live.labels()[4..], ["6379"]);
    }

    #[test]
    fn servers_in_containers_that_share_a_name_get_the_id() {
        let mut live = Live::after(&[&[(10, "6379", A), (11, "6379", B), (12, "6380", A)]]);
        let together = ["6379@3601745b3bd5", "6379@9f2c1b7a8e6d", "6380"];
        assert_eq!(live.labels(), together);
        // The host's server gets the name, under which people look for it there.
        live.start(&[(13, "6379", None)]);
        assert_eq!(live.labels()[3], "6379");
        // A label that is taken gets the pid as well.
        live.start(&[(14, "6379", A), (15, "6379", None)]);
        assert_eq!(live.labels()[4..], ["6379@3601745b3bd5@14", "6379@15"]);

        // If a container's server already has the name, it keeps it.
        let live = Live::after(&[&[(10, "6379", A)], &[(11, "6379", None)]]);
        assert_eq!(live.labels(), ["6379", "6379@11"]);

        let mut live = Live::after(&[&[(10, "6379", A)], &[(11, "6379", B)]]);
        assert_eq!(live.labels(), ["6379", "6379@9f2c1b7a8e6d"]);
        // The name alone is free again, but would tell nobody which of the two it is.
        live.0.remove(&10);
        live.start(&[(12, "6379", A)]);
        assert_eq!(live.labels(), together[..2].iter().rev().copied().collect::<Vec<_>>());
    }

    #[test]
    fn a_server_keeps_its_label_when_the_agent_is_started_anew() {
        let mut live =
            Live::after(&[&[(10, "6379", A)], &[(11, "6379", B)], &[(12, "6380", None)], &[(13, "6380", None)]]);
        let before = ["6379", "6379@9f2c1b7a8e6d", "6380", "6380@13"];
        assert_eq!(live.labels(), before);
        // Two were started while there was no agent, and the second has the pid of one that has ended since.
        live.0.remove(&12);
        live.restart_agent(&[(9, "6379", None), (12, "6380", A)]);
        let after = ["6379@9", before[0], before[1], "6380@3601745b3bd5", "6380@13"];
        assert_eq!(live.labels(), after);
        live.0.remove(&10);
        live.0.remove(&12);
        live.restart_agent(&[]);
        assert_eq!(live.labels(), [after[0], after[2], after[4]]);
    }

    #[test]
    fn a_label_that_another_has_is_not_kept() {
        let had = |label: &str| [(10, label.to_owned()), (11, label.to_owned())];
        let mut live = Live::after(&[&[(9, "6379", None)]]);
        live.find(&[(10, "6379", None), (11, "6379", A)], &had("6379").into());
        assert_eq!(live.labels(), ["6379", "6379@10", "6379@3601745b3bd5"]);
        // Only a foreign file says that.
        let mut live = Live::after(&[&[(9, "6379", None)]]);
        live.find(&[(10, "1", None), (11, "6379", None)], &had("6379@11").into());
        assert_eq!(live.labels(), ["6379", "6379@11", "6379@11@11"]);
    }

    proptest! {
        #[test]
        fn no_two_labels_are_equal(
            scans in prop::collection::vec(
                (prop::collection::vec(("a?(@[0-3])?", "[0-3]?"), 1..4), any::<bool>(), any::<bool>()),
                0..5,
            ),
            had in prop::collection::btree_map(0..9_u32, "a?(@[0-9]){0,2}", 0..5),
        ) {
            let mut live = Live::default();
            let mut pid = 0;
            for (scan, ends, restarts) in &scans {
                let new = scan.iter().map(|(name, container)| {
                    pid += 1;
                    let container = Some(container.as_str()).filter(|id| !id.is_empty());
                    // As long as an id is: longer than any pid.
                    (pid, name.as_str(), container.map(|id| if id < "2" { "3601745b3bd5" } else { "9f2c1b7a8e6d" }))
                });
                let new: Vec<_> = new.collect();
                if *restarts {
                    let before: Vec<_> = live.labels().into_iter().map(str::to_owned).collect();
                    live.restart_agent(&new);
                    prop_assert_eq!(&live.labels()[..before.len()], before);
                } else {
                    live.find(&new, &had);
                }
                let mut labels = live.labels();
                labels.sort_unstable();
                prop_assert!(labels.windows(2).all(|pair| pair[0] != pair[1]));
                if *ends {
                    live.0.remove(&(pid / 2));
                }
            }
        }
    }
}
