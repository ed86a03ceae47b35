//! Which of the programs are attached to a server.

use std::fmt;

/// Which of the programs are attached to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Programs that count and time every eviction call, no-op calls too.
    EveryCall,
    /// Programs that only evicting calls hit: a server below its limit pays nothing.
    EvictingOnly,
    /// Like evicting-only, but for part of the time.
    Sampled,
}

impl ProbeMode {
    /// Every mode, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::EveryCall, Self::EvictingOnly, Self::Sampled];
}

/// The spelling of the command line and of the label `mode`.
impl fmt::Display for ProbeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EveryCall => "every-call",
            Self::EvictingOnly => "evicting-only",
            Self::Sampled => "sampled",
        })
    }
}
