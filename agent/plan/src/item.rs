//! What a plan can find: each thing has its own type until it is printed.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::Variable;
use evictscope_machine::code::CodeError;
use evictscope_machine::dwarf::DwarfError;
use evictscope_machine::flow::CutError;
use evictscope_model::catalogue::{self, Need};
use evictscope_model::{Lost, Member};
use serde::Serialize;

use crate::members::MemberError;

/// Serializes values of these types as the text that they are printed as.
macro_rules! serialize_as_text {
    ($($type:ty),*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

/// How a traced function is named.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    /// Its kind, in plans and metrics: `eviction_call`.
    pub kind: &'static str,
    /// Prefix of the names of its probes: `eviction` makes `eviction_enter`.
    pub prefix: &'static str,
    /// What its inner site is called, if it has one: `goal`.
    pub inner: Option<&'static str>,
    /// What an exit is called: `done`.
    pub exit: &'static str,
}

impl Description {
    /// Returns the name of one of its probes: `eviction_enter`, `eviction_return`, `eviction_goal`.
    pub fn probe(&self, part: &str) -> String {
        format!("{}_{part}", self.prefix)
    }
}

/// Identifies a traced function: its place in the list of functions to plan, and its description.
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

/// How something was found.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
    /// A name in the executable.
    Symbol,
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
            Self::Symbol => "symbol",
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
            Self::Symbol => "symbol",
        })
    }
}

/// Something that a plan looks for, and may not find.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The result of its calls, at one or more exits.
    Result(FunctionKind),
    /// A quantity at an inner site.
    Quantity(
        #[borsh(serialize_with = "crate::sent::write_variable", deserialize_with = "crate::sent::variable")] Variable,
    ),
    /// The type of an expire cycle, at the inner site.
    CycleType,
    /// The keys that an expire cycle sampled, at the exits.
    KeysSampled,
    /// The keys that an expire cycle found expired, at the exits.
    KeysExpired,
    /// A member of `server`, or a global beside it.
    Member(Member),
    /// The server's counters of each command.
    Commands,
}

impl Item {
    /// Returns which metrics and alerts there are not where it was not found.
    pub fn lost(self) -> Lost {
        match self {
            Self::Member(member) => catalogue::lost(Need::Of(member)),
            item => catalogue::lost(Need::Item(&item.to_string())),
        }
    }
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
            Self::Commands => "commands",
        };
        f.write_str(name)
    }
}

serialize_as_text!(FunctionKind, Item);

/// Why something was not found. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The budget for one file ran out.
    #[error("it would take longer, or more memory, than any server needs: it is malicious, or not a server")]
    Budget,
    /// This server is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// Its code is not in the file.
    #[error("it is packed by UPX, so what runs is not what is in the file")]
    Packed,
    /// The function cannot be decoded.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A probe would not see every call.
    #[error("no instruction that every call executes before the stack pointer moves")]
    NoEntry,
    /// The code lacks what identifies the function. The sentence comes from the traced function.
    #[error("{0}")]
    Unrecognised(&'static str),
    /// It cannot be computed at the inner site.
    #[error("at the inner site no register or stack slot holds what it is made of")]
    OutOfReach,
    /// No exits can be probed.
    #[error(transparent)]
    Exits(#[from] CutError),
    /// The result cannot be read at an exit.
    #[error("at an exit no register is known to hold the result")]
    ResultUnknown,
    /// A member of `server` is not known.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The debug information cannot be read.
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
    /// A sentence: which function it is is not certain, the methods differ, or whatever another process has found.
    #[error("{0}")]
    Sentence(String),
}

serialize_as_text!(Reason);
