//! The servers that the user wants to be left alone.

use std::fmt;
use std::str::FromStr;

use nix::unistd::User;

use crate::cgroups::{Cgroups, ID_DIGITS, SHORT_ID_DIGITS, is_hexadecimal};

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
    use super::{Exclusion, Traits};
    use crate::cgroups::Cgroups;

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
            let told = text.parse::<Exclusion>().err().unwrap_or_default();
            assert!(told.contains(error) && told.contains("write port=6380"), "{text}: {told}");
        }
    }
}
