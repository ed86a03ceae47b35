//! Remembers which processes are not servers, and looks at them as little as possible.
//!
//! Nearly all processes of a host are of this kind, so they decide the cost of a scan. Most scans only
//! list such a process; in the others one `readlink` tells whether it has executed another program.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use nix::unistd::User;

use crate::containers::container::{Cgroups, ID_DIGITS, SHORT_ID_DIGITS, is_hexadecimal};
use crate::process::observed::ExeLink;

/// A process is looked at in every scan until it has been known for this many: it may be a shell that
/// is about to execute a server.
const YOUNG: u32 = 5;

/// Later it is looked at once in this many scans: at one scan a second, a server that it executes then
/// is still found within 2 s.
const LOOK_EVERY: u32 = 2;

/// Once in this many scans it is looked at in full, because its pid may have gone to another process
/// with the same executable, or it may have changed its title. A multiple of `LOOK_EVERY`.
const FULL_LOOK_EVERY: u32 = 48;

/// Processes that are not servers, by pid.
#[derive(Debug, Default)]
pub(super) struct Unrelated {
    round: u32,
    before: HashMap<u32, Known>,
    now: HashMap<u32, Known>,
}

/// A remembered process.
#[derive(Debug)]
pub(super) struct Known {
    fingerprint: Fingerprint,
    /// The scan that saw this program first.
    since: u32,
}

/// Something cheap to read that changes when a process executes another program.
#[derive(Debug, PartialEq, Eq)]
enum Fingerprint {
    Exe(ExeLink),
    /// The name, if the link may not be read.
    Comm(Vec<u8>),
}

impl Unrelated {
    /// Begins a scan. Processes that it does not look at are forgotten at the next.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.before = std::mem::take(&mut self.now);
    }

    /// Returns `None` if the process is still not a server. Otherwise it has to be looked at in full;
    /// if that finds no server, pass the result to [`Self::remember`].
    pub(super) fn look(&mut self, pid: u32) -> Option<Known> {
        let since = self.round;
        let new = |fingerprint| Some(Known { fingerprint, since });
        let Some(known) = self.before.remove(&pid) else {
            return new(Fingerprint::take(pid));
        };
        // Spreads them over the scans.
        let turn = self.round.wrapping_add(pid);
        let is_young = self.round.wrapping_sub(known.since) < YOUNG;
        if !is_young && !turn.is_multiple_of(LOOK_EVERY) {
            self.remember(pid, known);
            return None;
        }
        let fingerprint = Fingerprint::take(pid);
        if fingerprint != known.fingerprint {
            return new(fingerprint);
        }
        if turn.is_multiple_of(FULL_LOOK_EVERY) {
            return Some(known);
        }
        self.remember(pid, known);
        None
    }

    /// Remembers that a process is not a server.
    pub(super) fn remember(&mut self, pid: u32, known: Known) {
        self.now.insert(pid, known);
    }
}

impl Fingerprint {
    fn take(pid: u32) -> Self {
        match ExeLink::read(pid) {
            ExeLink::Denied => {
                Self::Comm(std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default())
            }
            link => Self::Exe(link),
        }
    }
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
            Some(("container", id)) => {
                match (SHORT_ID_DIGITS..=ID_DIGITS).contains(&id.len()) && is_hexadecimal(id) {
                    true => Ok(Self::Container(id.to_ascii_lowercase())),
                    false => Err(format!("{id} is not the id of a container: {ALLOWED}")),
                }
            }
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
        Err(error) => Err(format!(
            "cannot look up the user {user} ({error}): give the number"
        )),
    }
}

/// The properties of a process that an exclusion may name.
#[derive(Debug, Default)]
pub(super) struct Traits {
    /// Its TCP ports, as far as they are known.
    pub ports: Vec<u16>,
    /// Its effective user.
    pub user: u32,
    /// Its control groups.
    pub cgroups: Cgroups,
}

impl Exclusion {
    /// Returns whether it names a process.
    pub(super) fn names(&self, process: &Traits) -> bool {
        match self {
            Self::Port(port) => process.ports.contains(port),
            Self::User(user) => process.user == *user,
            Self::Container(digits) => {
                let mut ids = process.cgroups.container_ids();
                ids.any(|id| id.starts_with(digits))
            }
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
    use super::{Exclusion, FULL_LOOK_EVERY, Traits, Unrelated};
    use crate::containers::container::Cgroups;

    #[test]
    fn a_process_is_looked_at_in_full_at_first_and_then_rarely() {
        let pid = std::process::id();
        let mut unrelated = Unrelated::default();
        let mut full_looks = Vec::new();
        for scan in 0..=FULL_LOOK_EVERY {
            unrelated.begin();
            if let Some(known) = unrelated.look(pid) {
                full_looks.push(scan);
                unrelated.remember(pid, known);
            }
        }
        assert_eq!(full_looks.first(), Some(&0));
        assert!((2..=3).contains(&full_looks.len()), "{full_looks:?}");
    }

    #[test]
    fn a_process_that_has_gone_is_forgotten() {
        let mut unrelated = Unrelated::default();
        unrelated.begin();
        if let Some(known) = unrelated.look(std::process::id()) {
            unrelated.remember(std::process::id(), known);
        }
        for _ in 0..2 {
            assert_eq!(unrelated.now.len() + unrelated.before.len(), 1);
            unrelated.begin();
        }
        assert!(unrelated.now.is_empty() && unrelated.before.is_empty());
    }

    const ID: &str = "3601745b3bd54d9780436faa5f0e4f72bb46231663bb99a6bb892764917832c2";

    #[test]
    fn an_exclusion_names_what_it_says_and_nothing_else() -> Result<(), String> {
        let process = Traits {
            ports: vec![6379, 16379],
            user: 112,
            cgroups: Cgroups::parse(&format!("0::/system.slice/docker-{ID}.scope\n")),
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
        for (text, said) in [
            ("6380", "this excludes nothing"),
            ("prot=6380", "this excludes nothing"),
            ("port=0", "0 is not a TCP port"),
            ("port=65536", "65536 is not a TCP port"),
            ("user=", "this host has no user"),
            (
                "user=nobody-is-called-so",
                "this host has no user nobody-is-called-so",
            ),
            ("container=redis", "redis is not the id of a container"),
            (
                "container=3601745b3bd",
                "3601745b3bd is not the id of a container",
            ),
            ("container=", "is not the id of a container"),
        ] {
            let parsed = text.parse::<Exclusion>();
            let right = parsed
                .as_ref()
                .is_err_and(|error| error.contains(said) && error.contains("write port=6380"));
            assert!(right, "{text}: {parsed:?}");
        }
    }
}
