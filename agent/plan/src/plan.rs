//! The probe plan: everything to attach to one executable, and how each item was found.

use evictscope_abi::Variable;
use serde::Serialize;

pub use crate::flow::recipe::{Operand, Recipe, Term};

/// Everything to attach to one executable. Its JSON form is what `inspect --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbePlan {
    /// GNU build id, lower-case hexadecimal.
    pub build_id: Option<String>,
    /// `redis`, `valkey` or `keydb`.
    pub product: Option<String>,
    /// Version of the server, such as `7.0.15`; also where only its series is certain (`7.0`).
    pub version: Option<String>,
    /// Virtual address of the executable's first instruction (`e_entry`), from which follows where
    /// a process has it loaded.
    #[serde(skip)]
    pub entry_point: u64,
    /// The functions that the plan rests on.
    pub functions: Vec<Function>,
    /// Where the probes sit.
    pub sites: Sites,
    /// The goal variables and `maxmemory`, each exactly once.
    pub variables: Vec<VariablePlan>,
    /// The `server` members and counters that are read, in a fixed order.
    pub members: Vec<MemberPlan>,
    /// What could not be found, and why.
    pub refusals: Vec<Refusal>,
}

impl ProbePlan {
    /// Adds something that could not be found.
    pub fn refuse(&mut self, what: &str, why: &str) {
        self.refusals.push(Refusal {
            what: what.to_owned(),
            why: why.to_owned(),
        });
    }

    /// Whether all four goal variables are certain.
    pub fn is_certain(&self) -> bool {
        self.variables
            .iter()
            .filter(|variable| variable.name != "maxmemory")
            .all(|variable| variable.confidence == Confidence::Certain)
    }

    /// Why nothing at all can be learnt from a process with this plan, where that is so.
    pub fn useless(&self) -> Option<&str> {
        let refusal = self.refusals.first()?;
        self.functions.is_empty().then_some(refusal.why.as_str())
    }

    /// Whether the server's counter of commands can be read.
    pub fn counts_commands(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.name == "stat_numcommands")
    }
}

/// What a variable is called, in Redis's source, in plans and in metrics.
pub fn variable_name(variable: Variable) -> &'static str {
    match variable {
        Variable::MemReported => "mem_reported",
        Variable::Overhead => "overhead",
        Variable::MemUsed => "mem_used",
        Variable::MemTofree => "mem_tofree",
        Variable::Maxmemory => "maxmemory",
    }
}

/// A function by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Function {
    /// Its name in Redis's source.
    pub name: String,
    /// Virtual address, as in the ELF file.
    pub address: u64,
}

/// Where the probes sit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sites {
    /// Entry of the eviction call; entry and return probe sit there.
    pub entry: Option<Site>,
    /// Passed once by each evicting call, with the goal variables in reach.
    pub goal: Option<Site>,
    /// Each evicting call passes exactly one of these on its way out.
    pub done: Vec<DoneSite>,
}

impl Sites {
    /// The goal site and the done sites, where evicting calls can be probed: one without the others
    /// is of no use.
    pub fn evicting(&self) -> Option<(&Site, &[DoneSite])> {
        let goal = self.goal.as_ref()?;
        (!self.done.is_empty()).then_some((goal, &self.done))
    }

    /// The entry, where every call can be probed: unless evicting calls can be told from them, no-op
    /// calls cannot be counted.
    pub fn every_call(&self) -> Option<&Site> {
        self.evicting().and(self.entry.as_ref())
    }
}

/// One probe site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// Virtual address, as in the ELF file.
    pub address: u64,
    /// Offset in the file, which is what the kernel wants.
    pub file_offset: u64,
    /// The instruction, in AT&T syntax, as `objdump` prints it.
    pub instruction: String,
    /// Whether the kernel emulates the instruction (else it single-steps it, at ten times the cost).
    pub emulated: bool,
}

/// A site at the end of the evicting path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoneSite {
    /// Where.
    #[serde(flatten)]
    pub site: Site,
    /// Where the call's result is, if the plan knows.
    pub result: Option<Operand>,
}

/// One goal variable, or `maxmemory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariablePlan {
    /// `mem_reported`, `overhead`, `mem_used`, `mem_tofree` or `maxmemory`.
    pub name: &'static str,
    /// How to compute it at the goal site.
    pub recipe: Option<Recipe>,
    /// How the recipe was found.
    pub method: Method,
    /// How far it can be trusted.
    pub confidence: Confidence,
}

impl VariablePlan {
    /// Makes it one that is not known.
    pub fn withdraw(&mut self) {
        self.recipe = None;
        self.method = Method::None;
        self.confidence = Confidence::None;
    }
}

/// How an item was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Debug information only.
    Dwarf,
    /// Symbolic execution of the machine code.
    Dataflow,
    /// Debug information, and one of the other methods, which agree.
    Both,
    /// The static table of configuration directives.
    ConfigTable,
    /// The table of known layouts of `struct redisServer`.
    KnownLayout,
    /// Not found.
    None,
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dwarf => "DWARF",
            Self::Dataflow => "data flow",
            Self::Both => "both",
            Self::ConfigTable => "configuration table",
            Self::KnownLayout => "known layout",
            Self::None => "none",
        })
    }
}

/// How far an item can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Derived, and every cross-check that applies agrees.
    Certain,
    /// Not known, and so not exported.
    None,
}

/// A quantity in the server's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberPlan {
    /// Its name: a member of `server`, or `used_memory` for the allocator's counter.
    pub name: &'static str,
    /// Virtual address, as in the ELF file.
    pub address: u64,
    /// Offset in `server`; none for what is not a member of it.
    pub offset: Option<u64>,
    /// How it was found.
    pub method: Method,
    /// Where it is the sum of several counters, which; `address` is that of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

/// Counters of an allocator that are added up: one per thread, or only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Virtual address of the first, as in the ELF file; each has 8 bytes.
    #[serde(skip)]
    pub first: u64,
    /// Distance between two, in bytes.
    pub stride: u64,
    /// How many there are.
    pub most: u64,
    /// Address of the number of threads: only so many counters are in use, the others are 0. None
    /// where there is only one counter.
    pub threads: Option<u64>,
    /// Bytes of the number of threads, 4 or 8.
    pub threads_width: u64,
    /// Address of the counter that all threads share which found no counter of their own.
    pub overflow: Option<u64>,
}

impl Counters {
    /// A single counter.
    pub const fn one(address: u64) -> Self {
        Self {
            first: address,
            stride: 8,
            most: 1,
            threads: None,
            threads_width: 8,
            overflow: None,
        }
    }

    /// Bytes from the beginning of the first counter to the end of the last.
    pub const fn bytes(&self) -> u64 {
        self.most
            .saturating_sub(1)
            .saturating_mul(self.stride)
            .saturating_add(8)
    }
}

/// Something that could not be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The item.
    pub what: String,
    /// The reason.
    pub why: String,
}
