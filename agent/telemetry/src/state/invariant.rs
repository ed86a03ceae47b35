//! The ways in which a server can show its probe plan to be wrong.

use std::fmt;

/// What a server does that its plan says it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenInvariant {
    Allocator,
    Arithmetic,
    Maxmemory,
    NotRun,
    Unhit,
    LostExit,
    CycleType,
    CycleKeys,
    LostCycleEnd,
    ExpiredKeys,
    CycleTime,
}

impl BrokenInvariant {
    /// All of them, each with the spelling of the label `reason`, what it means in words, and what was tested, in the
    /// plural.
    pub const ALL: [(Self, [&'static str; 3]); 11] = [
        (Self::Allocator, ["allocator", "mem_reported is not what the allocator counts", "evicting calls"]),
        (Self::Arithmetic, ["arithmetic", "the goal variables do not add up", "evicting calls"]),
        (Self::Maxmemory, ["maxmemory", "maxmemory in the calculation is not the configured one", "evicting calls"]),
        (Self::NotRun, ["not_run", "the server does not run the code that its executable leads to", "probes"]),
        (Self::Unhit, ["unhit", "keys were evicted, and no probe was hit", "evicted keys"]),
        (Self::LostExit, ["lost_exit", "the end of evicting calls was missed", "evicting calls"]),
        (Self::CycleType, ["expire_type", "the type of an expire cycle is neither slow nor fast", "cycles"]),
        (Self::CycleKeys, ["expire_keys", "more keys had expired than an expire cycle sampled", "cycles"]),
        (Self::LostCycleEnd, ["expire_lost_end", "the end of expire cycles was missed", "cycles"]),
        (
            Self::ExpiredKeys,
            ["expire_counter", "more keys expired in expire cycles than the server counts", Self::SPANS],
        ),
        (Self::CycleTime, ["expire_time", "expire cycles do not take as long as the server says", Self::SPANS]),
    ];
    const SPANS: &str = "spans of a hundred cycles or more";

    fn words(self) -> [&'static str; 3] {
        Self::ALL[self as usize].1
    }

    pub fn meaning(self) -> &'static str {
        self.words()[1]
    }

    pub fn tested(self) -> &'static str {
        self.words()[2]
    }

    /// Returns whether it only shows that evicting calls are not seen: the server's own counters are as good as before.
    pub fn leaves_counters(self) -> bool {
        matches!(self, Self::NotRun | Self::Unhit)
    }

    /// Returns whether it shows that the members of `server` are not where the plan says. All of them depend on the
    /// address of `maxmemory`, by which the layout was recognised.
    pub fn disproves_members(self) -> bool {
        self == Self::Maxmemory
    }

    /// Returns whether it was found broken by members of `server`, over spans of cycles.
    pub fn rests_on_members(self) -> bool {
        matches!(self, Self::ExpiredKeys | Self::CycleTime)
    }
}

/// The spelling of the label `reason`.
impl fmt::Display for BrokenInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words()[0])
    }
}

/// Why the plan of eviction calls or of the expire cycle is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    pub broken: BrokenInvariant,
    /// How often it was broken: at evicting calls, at expire cycles, in spans of at least a hundred cycles, at sites,
    /// or for evicted keys.
    pub failed: u64,
    pub tested: u64,
}

impl Withdrawal {
    pub(super) fn of(broken: BrokenInvariant, failed: u64, tested: u64) -> Self {
        Self { broken, failed, tested }
    }
}
