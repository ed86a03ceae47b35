//! Which of the programs are attached to a server.

use std::fmt;

/// Which of the programs are attached to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// All of them: every eviction call is counted and timed, no-op calls too.
    EveryCall,
    /// All but the entry and return probes: a server below its limit pays nothing.
    EvictingOnly,
}

impl ProbeMode {
    /// Every mode, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::EveryCall, Self::EvictingOnly];
}

/// The spelling of the command line and of the label `mode`.
impl fmt::Display for ProbeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EveryCall => "every-call",
            Self::EvictingOnly => "evicting-only",
        })
    }
}
