//! `evictscope keys`: what fills a server's cache, from random entries of its hash tables.
//!
//! [`layout`] says how versions differ, [`databases`] finds the databases and their hash tables, [`dict`] reads one,
//! [`size`] says how large a value is, and [`sampler`] draws. What is drawn becomes a [`KeysSummary`]. Everything is
//! read from the memory of a running server: what is inconsistent is left out and counted.
//!
//! Of a watched server, the tables are a part of its memory, and their keys are counted: how large they are shows what
//! evicting them would take. [`expired`] samples those that have expired. Nothing else of this is exported: it is a
//! question, not a metric.

mod allocator;
mod databases;
mod dict;
mod expired;
mod layout;
mod memory;
mod object;
mod sampler;
mod size;
mod summary;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::ensure;
use clap::builder::TypedValueParser as _;
use evictscope_host::{ProcessIdentity, Scheduling, load_bias};
use evictscope_model::Member;
use evictscope_plan::ProbePlan;
use evictscope_telemetry::KeyClock;
use regex::bytes::Regex;
use rustix::process::setpriority_process;

pub use self::databases::Databases;
pub use self::dict::Dict;
pub use self::expired::ExpiredSampler;
pub use self::layout::KeyspaceLayout;
pub use self::memory::{Memory, Walk};
pub use self::summary::{KeyUse, KeysRow, KeysSummary};
use crate::clock::unix_time;
use crate::planning::Running;

/// It gives way to everything else on the host, and still gets a tenth of a core beside a busy loop.
const NICE: i32 = 10;
/// `child_pid` while there is no child: -1.
const NO_CHILD: u32 = u32::MAX;

/// Show what fills a server's cache: types and sizes of keys, how long they have not been used, and how long they have
/// to live
///
/// Looks at random entries of the server's hash tables in its memory. The server is neither stopped nor asked, and the
/// command yields to everything else on the host. What is inconsistent because it has just changed is left out.
///
/// Sizes are as MEMORY USAGE counts them. Redis since 8.6 keeps the size of each value; in other servers, only a few
/// elements of a large value are looked at, consumer groups are not counted, and compressed lists count as if they were
/// not compressed. What modules hold is not counted, nor are field names that hashes share. `±` is the sampling error,
/// in 95 of 100 samples. In a cluster it is larger for groups of keys with one hash tag: several of these are drawn at
/// once.
///
/// How long keys have not been used is not known of a replica, nor while the server saves, nor of keys that were not
/// used since it started. By LRM policies it is how long they have not been written.
///
/// Works for Redis 6.0 to 8.2, 8.6 and 8.10, and Valkey 7.2 to 9.1. Needs root, or CAP_SYS_PTRACE and
/// CAP_DAC_READ_SEARCH.
#[derive(clap::Args)]
pub struct KeysArguments {
    /// Process id of a running server
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: u32,
    /// How many keys to look at. A cache with fewer is looked through as a whole
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub samples: u32,
    /// For how long to look at most, in seconds
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..=600).map(Duration::from_secs))]
    pub seconds: Duration,
    /// Group by what the first group of REGEX matches in the name of a key, `^(\w+):` for example. Otherwise no name is
    /// read
    #[arg(long, value_name = "REGEX")]
    pub by: Option<Regex>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Looks at random keys of a server. Fails if something is not there, and says what to do.
pub fn answer(arguments: &KeysArguments) -> anyhow::Result<KeysSummary> {
    // It may be forbidden, and is only a courtesy.
    let _ = setpriority_process(None, NICE);
    let process = Running::find(arguments.pid)?;
    let plan = process.plan(None, &[])?.plan;
    let bias = load_bias(arguments.pid, plan.identity.entry_point)?;
    let memory = Memory::open(arguments.pid, Walk::Tables)?;
    let identity = process.handle.identity();
    let used = use_of(&memory, &plan, bias, identity);
    let started = unix_time().saturating_sub(identity.age()).as_secs();
    let databases = Databases::find(&memory, &plan, bias);
    ensure!(!process.handle.has_ended(), "process {} has ended", arguments.pid);
    let drawn = sampler::draw(&memory, &databases?, arguments, started);
    ensure!(!process.handle.has_ended(), "process {} has ended meanwhile", arguments.pid);
    Ok(KeysSummary::of(&drawn?, used))
}

/// Returns what a server notes of the use of its keys.
fn use_of(memory: &Memory, plan: &ProbePlan, bias: u64, process: &ProcessIdentity) -> KeyUse {
    let (pid, age) = (process.pid, process.age());
    let word = |member| memory.u64(plan.member(member)?.address.at(bias).get());
    let policy = word(Member::MaxmemoryPolicy).map(|policy| KeyClock::of(policy & u64::from(u32::MAX)));
    // If its role was not found, the memory of the link to the primary shows it.
    let link = plan.member(Member::StatClientsTypeMemory);
    let link = || memory.words::<4>(link?.address.at(bias).get()).map(|[.., primary]| primary);
    let is_replica = word(Member::Masterhost).or_else(link).map(|primary| primary != 0);
    let has_child = (word(Member::ChildPid).map(|pid| pid as u32 != NO_CHILD))
        .or_else(|| Some(Scheduling::of(pid)?.child_ns().is_some()));
    match (policy, is_replica, has_child) {
        (Some(KeyClock::Counter), ..) => KeyUse::Counter,
        (Some(KeyClock::Writes), ..) => KeyUse::Written(age.as_secs()),
        (Some(KeyClock::Reads), Some(false), Some(false)) => KeyUse::Used(age.as_secs()),
        (_, Some(true), _) => KeyUse::Unknown("a replica does not see what clients of its primary read"),
        (.., Some(true)) => KeyUse::Unknown("while it saves, a server does not note what is read"),
        _ => KeyUse::Unknown("whether it notes what is read was not found"),
    }
}
