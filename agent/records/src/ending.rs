//! How a server ended, as far as the kernel says.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ending {
    /// It ended itself.
    Exit {
        /// Its exit status: 0 for `SHUTDOWN` and SIGTERM.
        status: u8,
    },
    /// A signal ended it.
    Signal {
        /// The signal's number.
        number: u8,
    },
    /// The OOM killer ended it.
    Oom {
        /// Whether its control group, or one above it, was at its memory limit; if not, the host had no memory left.
        of_group: Option<bool>,
    },
    /// The kernel does not say: before Linux 6.15 it does only until the process's parent has been told.
    Unknown,
}

/// The signals that end a server, by number, with what sends them.
const SIGNALS: [(u8, &str, &str); 11] = [
    (1, "SIGHUP", SENT),
    (2, "SIGINT", SENT),
    (3, "SIGQUIT", SENT),
    (4, "SIGILL", CRASH),
    (5, "SIGTRAP", "a debugger or another tool left a breakpoint in it"),
    (6, "SIGABRT", CRASH),
    (7, "SIGBUS", CRASH),
    (8, "SIGFPE", CRASH),
    (9, "SIGKILL", SENT),
    (11, "SIGSEGV", CRASH),
    (15, "SIGTERM", SENT),
];
const SENT: &str = "another process sent that signal, and the kernel does not say which";
const CRASH: &str =
    "that is how a crash ends, unless another process sent that signal: the server's own log has the report of a crash";

impl Ending {
    /// All values of the label `how`.
    pub const HOW: [&str; 4] = ["exit", "signal", "oom", "unknown"];

    /// Returns the value of the label `how`, as an index into [`Self::HOW`].
    pub fn label(self) -> usize {
        match self {
            Self::Exit { .. } => 0,
            Self::Signal { .. } => 1,
            Self::Oom { .. } => 2,
            Self::Unknown => 3,
        }
    }

    /// Returns the value of the label `how`.
    pub fn how(self) -> &'static str {
        Self::HOW[self.label()]
    }

    /// Returns its exit status or the name of the signal.
    pub fn status(self) -> String {
        match self {
            Self::Exit { status } => status.to_string(),
            Self::Signal { number } => match known(number) {
                Some((_, name, _)) => (*name).to_owned(),
                None => format!("signal {number}"),
            },
            Self::Oom { .. } => "SIGKILL".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }

    /// Returns whether nothing is wrong with it.
    pub fn is_clean(self) -> bool {
        self == Self::Exit { status: 0 }
    }

    /// Says why, as far as the way in which it ended tells: a sentence without its full stop.
    pub fn why(self) -> &'static str {
        match self {
            Self::Exit { status: 0 } => "it was told to end, or to start again",
            Self::Exit { .. } => "it gave up: its own log says why",
            Self::Signal { number } => known(number).map_or(SENT, |(_, _, why)| why),
            Self::Oom { of_group: Some(true) } => "its control group, or one above it, was at its memory limit",
            Self::Oom { of_group: Some(false) } => "the host had no memory left",
            Self::Oom { of_group: None } => {
                "the host, or its control group, had no memory left: the kernel's log says which"
            }
            Self::Unknown => {
                "the kernel told only its parent, before Linux 6.15: the log of what started it may say more"
            }
        }
    }
}

fn known(number: u8) -> Option<&'static (u8, &'static str, &'static str)> {
    SIGNALS.iter().find(|signal| signal.0 == number)
}

/// What it did, after the name of the server.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { status } => write!(f, "ended itself, with status {status}"),
            Self::Signal { .. } => write!(f, "was ended by {}", self.status()),
            Self::Oom { of_group } => f.write_str(match of_group {
                Some(true) => "was killed by the OOM killer of its control group",
                Some(false) => "was killed by the OOM killer of the host",
                None => "was killed by the OOM killer",
            }),
            Self::Unknown => f.write_str("ended; how is not known"),
        }
    }
}
