//! Tells servers from other processes by their names, without any I/O.

use std::str::FromStr;

use regex::Regex;

use super::observed::{ExeLink, Observed, file_name};

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

    /// Returns the role of a process, by its names.
    pub(super) fn role(&self, process: &Observed) -> Role {
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
fn is_script(process: &Observed) -> bool {
    process
        .arguments
        .iter()
        .skip(1)
        .map(|argument| file_name(argument))
        .any(|name| name.get(..15).unwrap_or(name) == process.comm)
}

fn is_sentinel(process: &Observed) -> bool {
    let name = process.title_name();
    name.ends_with("-sentinel")
        || process.comm.ends_with("-sentinel")
        || process.title().contains("[sentinel]")
        || process.arguments.iter().any(|argument| argument == "--sentinel")
}

/// Returns whether it is a child that saves, rewrites the AOF, feeds a replica or works for a module,
/// such as `redis-rdb-bgsave`, `redis-aof-rewrite`, `redis-rdb-to-slaves`, `redis-module-fork`.
fn is_saving_child(process: &Observed) -> bool {
    let name = process.title_name();
    let mut works = FAMILIES.iter().filter_map(|family| name.strip_prefix(family));
    let kinds = ["rdb-", "aof-", "module-fork"];
    works.any(|work| kinds.iter().any(|kind| work.starts_with(kind)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{DEFAULT_PATTERN, Matcher, Role};
    use crate::process::Identity;
    use crate::scanner::observed::{ExeLink, Observed};

    const SERVER: &str = "/usr/bin/redis-server";

    fn process(comm: &str, exe: &str, arguments: &[&str]) -> Observed {
        Observed {
            identity: Identity { pid: 100, start_time_ticks: 1, text_start: 0x1000, executable: None },
            parent: 1,
            state: 'S',
            flags: 0,
            comm: comm.to_owned(),
            exe: ExeLink::Path(PathBuf::from(exe)),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        }
    }

    fn role(process: &Observed) -> Result<Role, String> {
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
        let zombie = Observed { state: 'Z', ..server.clone() };
        let kernel_thread = Observed { flags: 0x0020_8040, ..server };
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
}
