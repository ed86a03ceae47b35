//! What a plan is about: each thing that it can find has a type of its own until it is printed.

use std::fmt;

use evictscope_abi::Variable;
use serde::Serialize;

/// Lets JSON have values of these types as the text that they are printed as.
macro_rules! serialize_as_text {
    ($($type:ty),*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
pub(crate) use serialize_as_text;

/// What a traced function is called, and what can be read of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    /// Its kind, in plans and metrics: `eviction_call`.
    pub kind: &'static str,
    /// Begins the names of its probes: `eviction` makes `eviction_enter`.
    pub prefix: &'static str,
    /// What its inner site is called, where it has one: `goal`.
    pub inner: Option<&'static str>,
    /// What an exit is called: `done`.
    pub exit: &'static str,
    /// What can be read at its inner site, in the order of the plan.
    pub quantities: &'static [Variable],
}

impl Description {
    /// Returns the name of one of its probes: `eviction_enter`, `eviction_return`, `eviction_goal`.
    pub fn probe(&self, part: &str) -> String {
        format!("{}_{part}", self.prefix)
    }
}

/// Which traced function: its place in the list that was planned with, and its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionKind {
    /// Its place in the list.
    pub index: usize,
    /// What it is called.
    pub description: &'static Description,
}

impl fmt::Display for FunctionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description.kind)
    }
}

/// Returns the name of a variable, in Redis's source, in plans and in metrics.
pub const fn variable_name(variable: Variable) -> &'static str {
    match variable {
        Variable::MemReported => "mem_reported",
        Variable::Overhead => "overhead",
        Variable::MemUsed => "mem_used",
        Variable::MemTofree => "mem_tofree",
        Variable::Maxmemory => "maxmemory",
    }
}

/// Something in the server's memory: a member of `server`, or the allocator's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// The allocator's counter (`used_memory` in zmalloc.c), bytes.
    UsedMemory,
    /// `server.maxclients`.
    Maxclients,
    /// `server.maxmemory`, bytes.
    Maxmemory,
    /// `server.maxmemory_policy`.
    MaxmemoryPolicy,
    /// `server.port`.
    Port,
    /// `server.stat_clients_type_memory`, an array of four, bytes.
    StatClientsTypeMemory,
    /// `server.stat_evictedkeys`.
    StatEvictedkeys,
    /// `server.stat_expiredkeys`.
    StatExpiredkeys,
    /// `server.stat_numcommands`.
    StatNumcommands,
    /// `server.active_expire_effort`, 1 to 10, an `int`.
    ActiveExpireEffort,
    /// `server.config_hz` (`server.hz` since Valkey 8.1), an `int`: what `hz` was set to.
    ConfigHz,
    /// `server.stat_expire_cycle_time_used`, microseconds.
    StatExpireCycleTimeUsed,
    /// `server.stat_expired_stale_perc` (`server.stat_expired_keys_stale_perc` since Valkey 9.0), a `double` from 0 to
    /// 1: the share of the sampled keys that had expired.
    StatExpiredStalePerc,
    /// `server.stat_expired_time_cap_reached_count`.
    StatExpiredTimeCapReachedCount,
    /// `server.stat_expired_subkeys` (Redis 7.4) or `server.stat_expiredfields` (Valkey 9.0): fields of hashes.
    StatExpiredSubkeys,
}

impl Member {
    /// The members of `server`.
    pub const OF_SERVER: [Self; 14] = [
        Self::Maxclients,
        Self::Maxmemory,
        Self::MaxmemoryPolicy,
        Self::Port,
        Self::StatNumcommands,
        Self::StatEvictedkeys,
        Self::StatExpiredkeys,
        Self::StatClientsTypeMemory,
        Self::ActiveExpireEffort,
        Self::ConfigHz,
        Self::StatExpiredStalePerc,
        Self::StatExpiredTimeCapReachedCount,
        Self::StatExpireCycleTimeUsed,
        Self::StatExpiredSubkeys,
    ];

    /// Returns its name in Redis's source.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UsedMemory => "used_memory",
            Self::Maxclients => "maxclients",
            Self::Maxmemory => "maxmemory",
            Self::MaxmemoryPolicy => "maxmemory_policy",
            Self::Port => "port",
            Self::StatNumcommands => "stat_numcommands",
            Self::StatEvictedkeys => "stat_evictedkeys",
            Self::StatExpiredkeys => "stat_expiredkeys",
            Self::StatClientsTypeMemory => "stat_clients_type_memory",
            Self::ActiveExpireEffort => "active_expire_effort",
            Self::ConfigHz => "config_hz",
            Self::StatExpireCycleTimeUsed => "stat_expire_cycle_time_used",
            Self::StatExpiredStalePerc => "stat_expired_stale_perc",
            Self::StatExpiredTimeCapReachedCount => "stat_expired_time_cap_reached_count",
            Self::StatExpiredSubkeys => "stat_expired_subkeys",
        }
    }

    /// Returns the name that it has in the source of newer Valkeys, where that is another one.
    pub(crate) const fn other_name(self) -> Option<&'static str> {
        match self {
            // Elsewhere `hz` is something else: what the server makes of `config_hz`.
            Self::ConfigHz => Some("hz"),
            Self::StatExpiredStalePerc => Some("stat_expired_keys_stale_perc"),
            Self::StatExpiredSubkeys => Some("stat_expiredfields"),
            _ => None,
        }
    }
}

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Debug information only.
    Dwarf,
    /// Symbolic execution of the machine code.
    Dataflow,
    /// Debug information and one of the other methods, which agree.
    Both,
    /// The static table of configuration directives.
    ConfigTable,
    /// The table of known layouts of `struct redisServer`.
    KnownLayout,
}

impl Method {
    /// Returns its name, in JSON and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dwarf => "dwarf",
            Self::Dataflow => "dataflow",
            Self::Both => "both",
            Self::ConfigTable => "config_table",
            Self::KnownLayout => "known_layout",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Dwarf => "DWARF",
            Self::Dataflow => "data flow",
            Self::Both => "both",
            Self::ConfigTable => "configuration table",
            Self::KnownLayout => "known layout",
        })
    }
}

/// Something that a plan looks for, and may not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The whole plan.
    Plan,
    /// What the debug information says.
    DebugInfo,
    /// Version of the server.
    Version,
    /// A traced function.
    Function(FunctionKind),
    /// Its first probe.
    Entry(FunctionKind),
    /// Its inner site.
    Inner(FunctionKind),
    /// Its exits.
    Exits(FunctionKind),
    /// The result of its calls, at one exit at least.
    Result(FunctionKind),
    /// A quantity at an inner site.
    Quantity(Variable),
    /// At the inner site, the type of an expire cycle.
    CycleType,
    /// At the exits, the keys that an expire cycle sampled.
    KeysSampled,
    /// At the exits, the keys that an expire cycle found expired.
    KeysExpired,
    /// A member of `server`, or the allocator's counter.
    Member(Member),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |kind: FunctionKind, part| kind.description.probe(part);
        let name = match *self {
            Self::Plan => "plan",
            Self::DebugInfo => "dwarf",
            Self::Version => "version",
            Self::Function(kind) => kind.description.kind,
            Self::Entry(kind) => &part(kind, "enter"),
            Self::Inner(kind) => &part(kind, kind.description.inner.unwrap_or("inner")),
            Self::Exits(kind) => &part(kind, kind.description.exit),
            Self::Result(kind) => &part(kind, "result"),
            Self::Quantity(variable) => variable_name(variable),
            Self::CycleType => "expire_type",
            Self::KeysSampled => "expire_keys_sampled",
            Self::KeysExpired => "expire_keys_expired",
            Self::Member(member) => member.name(),
        };
        f.write_str(name)
    }
}

serialize_as_text!(FunctionKind, Item);
