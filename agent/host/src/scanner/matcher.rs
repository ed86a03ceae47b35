//! Tells servers from other processes by their names, and those that the user wants to be left alone from the rest.

use std::fmt;
use std::str::FromStr;

use nix::unistd::User;
use regex::Regex;

use super::observed::{ExeLink, ObservedProcess, file_name};
use crate::cgroups::{Cgroups, ID_DIGITS, SHORT_ID_DIGITS, is_hexadecimal};

/// The default of `--process-match`.
pub const DEFAULT_PATTERN: &str = "^(redis-server|valkey-server)$";

/// The prefixes of the programs that belong to a server.
const FAMILIES: [&str; 2] = ["redis-", "valkey-"];

/// Recognises servers by their names.
///
/// Its regular expression is matched against each of: the name of the process's main thread (`comm`,
/// 15 bytes), the last component of `/proc/PID/exe`, and the last component of its title's first
/// word. One is enough: on Debian, the second of every redis-server is `redis-check-rdb`.
#[derive(Clone, Debug)]
pub struct Matcher(Regex);

impl FromStr for Matcher {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, Self::Err> {
        let pattern = Regex::new(pattern).map_err(|error| format!("not a regular expression: {error}"))?;
        if pattern.is_match("") {
            return Err(
                "it matches the empty string, and so every process: name the servers, as in ^redis-server$".to_owned()
            );
        }
        Ok(Self(pattern))
    }
}

/// The role of a process, judged by its names alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Not a server, by any name.
    Unrelated,
    /// Has a server's name but serves no data: a sentinel, or a child that saves.
    Helper,
    /// A server, unless it turns out to be a child of one.
    Candidate,
}

impl Matcher {
    /// Returns whether a process has a server's name, as far as its memory need not be read for that.
    pub(super) fn matches(&self, comm: &str, exe: &ExeLink) -> bool {
        self.0.is_match(comm) || exe.file_name().is_some_and(|name| self.0.is_match(&name))
    }

    pub(super) fn role(&self, process: &ObservedProcess) -> Role {
        let by_title = self.0.is_match(process.title_name());
        let by_exe = process.exe.file_name().is_some_and(|name| self.0.is_match(&name));
        let by_comm = self.0.is_match(&process.comm);
        if !process.is_alive() || !(by_title || by_exe || by_comm && !is_script(process)) {
            Role::Unrelated
        } else if is_sentinel(process) || is_saving_child(process) {
            Role::Helper
        } else {
            Role::Candidate
        }
    }
}

/// Returns whether it is a script with a `#!` line: `comm` is the script's name, but an interpreter
/// runs, with the script among its arguments.
fn is_script(process: &ObservedProcess) -> bool {
    process
        .arguments
        .iter()
        .skip(1)
        .map(|argument| file_name(argument))
        .any(|name| name.get(..15).unwrap_or(name) == process.comm)
}

fn is_sentinel(process: &ObservedProcess) -> bool {
    process.title_name().ends_with("-sentinel")
        || process.comm.ends_with("-sentinel")
        || process.title().contains("[sentinel]")
        || process.arguments.iter().any(|argument| argument == "--sentinel")
}

/// Returns whether it is a child that saves, rewrites the AOF, feeds a replica or works for a module,
/// such as `redis-rdb-bgsave`, `redis-aof-rewrite`, `redis-rdb-to-slaves`, `redis-module-fork`.
fn is_saving_child(process: &ObservedProcess) -> bool {
    let name = process.title_name();
    let mut works = FAMILIES.iter().filter_map(|family| name.strip_prefix(family));
    let kinds = ["rdb-", "aof-", "module-fork"];
    works.any(|work| kinds.iter().any(|kind| work.starts_with(kind)))
}

/// What `--exclude` takes, for its error messages.
const ALLOWED: &str = "write port=6380, user=redis (or user=112, the number) or container=3f2a91c04be7 (12 to \
                       64 digits of its id)";

/// One value of `--exclude`: servers that get no probe, are not read and have no series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// Servers that listen on this TCP port, or have it in their title.
    Port(u16),
    /// Servers of this user, by number in the agent's user namespace.
    User(u32),
    /// Servers in a container whose id begins with these hexadecimal digits.
    Container(String),
}

impl FromStr for Exclusion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some(("port", port)) => match port.parse() {
                Ok(port) if port != 0 => Ok(Self::Port(port)),
                _ => Err(format!("{port} is not a TCP port: {ALLOWED}")),
            },
            Some(("user", user)) => user_number(user).map(Self::User),
            Some(("container", id)) if (SHORT_ID_DIGITS..=ID_DIGITS).contains(&id.len()) && is_hexadecimal(id) => {
                Ok(Self::Container(id.to_ascii_lowercase()))
            }
            Some(("container", id)) => Err(format!("{id} is not the id of a container: {ALLOWED}")),
            _ => Err(format!("this excludes nothing: {ALLOWED}")),
        }
    }
}

/// Returns the number of a user given by name or number. A name that this host does not know is an error,
/// not a user without servers.
fn user_number(user: &str) -> Result<u32, String> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    match User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) => Err(format!(
            "this host has no user {user}: {ALLOWED}. The users of a container may have other names there: \
             take the number that `ps -eo uid,pid,args` shows"
        )),
        Err(error) => Err(format!("cannot look up the user {user} ({error}): give the number")),
    }
}

/// The properties of a process that an exclusion may name.
#[derive(Debug, Default)]
pub(super) struct Traits {
    /// Its TCP ports, as far as they are known.
    pub ports: Vec<u16>,
    pub user: u32,
    pub cgroups: Cgroups,
}

impl Exclusion {
    pub(super) fn names(&self, process: &Traits) -> bool {
        match self {
            Self::Port(port) => process.ports.contains(port),
            Self::User(user) => process.user == *user,
            Self::Container(digits) => process.cgroups.container_ids().any(|id| id.starts_with(digits)),
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(to, "port={port}"),
            Self::User(user) => write!(to, "user={user}"),
            Self::Container(digits) => write!(to, "container={digits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{DEFAULT_PATTERN, Exclusion, Matcher, Role, Traits};
    use crate::cgroups::Cgroups;
    use crate::process::ProcessIdentity;
    use crate::scanner::observed::{ExeLink, ObservedProcess};

    const SERVER: &str = "/usr/bin/redis-server";

    fn process(comm: &str, exe: &str, arguments: &[&str]) -> ObservedProcess {
        ObservedProcess {
            identity: ProcessIdentity { pid: 100, start_time_ticks: 1, text_start: 0x1000, executable: None },
            parent: 1,
            state: 'S',
            flags: 0,
            comm: comm.to_owned(),
            exe: ExeLink::Path(PathBuf::from(exe)),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        }
    }

    fn role(process: &ObservedProcess) -> Result<Role, String> {
        Ok(DEFAULT_PATTERN.parse::<Matcher>()?.role(process))
    }

    #[test]
    fn one_name_of_a_server_is_enough_unless_its_work_is_another() -> Result<(), String> {
        for (comm, exe, arguments, expected) in [
            ("redis-server", "/usr/bin/redis-check-rdb", &["cache *:6379"][..], Role::Candidate),
            ("main", "/usr/bin/valkey-server (deleted)", &["main"], Role::Candidate),
            ("main", "/opt/main", &["/opt/valkey-server :6379 [cluster]"], Role::Candidate),
            ("redis-check-rdb", "/redis-check-rdb", &["redis-check-rdb", "dump.rdb"], Role::Unrelated),
            ("redis-cli", "/redis-cli", &["redis-cli", "redis-server"], Role::Unrelated),
            ("vim", "/usr/bin/vim", &["vim", "/usr/bin/redis-server"], Role::Unrelated),
            ("redis-server", "/usr/bin/dash", &["/bin/sh", "/usr/local/bin/redis-server"], Role::Unrelated),
            ("redis-server", SERVER, &["redis-server", "/etc/sentinel.conf", "--sentinel"], Role::Helper),
            ("redis-server", SERVER, &["redis-server *:26379 [sentinel]"], Role::Helper),
            ("redis-server", SERVER, &["redis-sentinel *:26379 [sentinel]"], Role::Helper),
            ("redis-server", SERVER, &["redis-rdb-bgsave *:6379"], Role::Helper),
            ("redis-server", SERVER, &["redis-aof-rewrite *:6379"], Role::Helper),
            ("redis-server", SERVER, &["valkey-rdb-to-slaves *:6379"], Role::Helper),
            ("redis-server", SERVER, &["redis-module-fork *:6379"], Role::Helper),
        ] {
            assert_eq!(role(&process(comm, exe, arguments))?, expected, "{comm} {exe} {arguments:?}");
        }
        Ok(())
    }

    #[test]
    fn zombies_and_kernel_threads_are_unrelated() -> Result<(), String> {
        let server = process("redis-server", "/redis-server", &["redis-server *:6379"]);
        let zombie = ObservedProcess { state: 'Z', ..server.clone() };
        let kernel_thread = ObservedProcess { flags: 0x0020_8040, ..server };
        assert_eq!(role(&zombie)?, Role::Unrelated);
        assert_eq!(role(&kernel_thread)?, Role::Unrelated);
        Ok(())
    }

    #[test]
    fn the_port_is_in_the_title() {
        let port = |title| process("redis-server", "/redis-server", &[title]).title_port();
        assert_eq!(port("redis-server *:6379 [cluster]"), Some(6379));
        assert_eq!(port("redis-server [::1]:7000"), Some(7000));
        assert_eq!(port("redis-server /run/redis.sock"), None);
        assert_eq!(port("redis-server"), None);
    }

    const ID: &str = "3601745b3bd54d9780436faa5f0e4f72bb46231663bb99a6bb892764917832c2";

    #[test]
    fn an_exclusion_names_what_it_says_and_nothing_else() -> Result<(), String> {
        let process = Traits {
            ports: vec![6379, 16379],
            user: 112,
            cgroups: Cgroups(format!("0::/system.slice/docker-{ID}.scope\n")),
        };
        for (text, named) in [
            ("port=6379", true),
            ("port=16379", true),
            ("port=637", false),
            ("user=112", true),
            ("user=0", false),
            ("user=root", false),
            ("user=1999", false),
            ("container=3601745b3bd5", true),
            ("container=3601745B3BD5", true),
            (&format!("container={ID}"), true),
            ("container=601745b3bd54", false),
        ] {
            assert_eq!(text.parse::<Exclusion>()?.names(&process), named, "{text}");
        }
        assert_eq!("user=root".parse(), Ok(Exclusion::User(0)));
        Ok(())
    }

    #[test]
    fn a_typo_is_an_error_that_says_what_is_allowed() {
        for (text, error) in [
            ("6380", "this excludes nothing"),
            ("prot=6380", "this excludes nothing"),
            ("port=0", "0 is not a TCP port"),
            ("port=65536", "65536 is not a TCP port"),
            ("user=", "this host has no user"),
            ("user=nobody-is-called-so", "this host has no user nobody-is-called-so"),
            ("container=redis", "redis is not the id of a container"),
            ("container=3601745b3bd", "3601745b3bd is not the id of a container"),
            ("container=", "is not the id of a container"),
        ] {
            let error_text = text.parse::<Exclusion>().err().unwrap_or_default();
            assert!(error_text.contains(error) && error_text.contains("write port=6380"), "{text}: {error_text}");
        }
    }
}
