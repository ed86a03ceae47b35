//! `evictscope keys`: what fills a server's cache, from random entries of its hash tables.
//!
//! [`layout`] says how versions differ, [`databases`] finds the databases, [`tables`] has their hash tables, [`dict`] reads one,
//! [`value`] says how large a value is, and [`sampler`] draws. What is drawn becomes a [`Summary`]. Everything is read from the
//! memory of a running server: what is inconsistent is left out and counted.
//!
//! Of a watched server, [`count`] counts the keys: how large they are shows what evicting them would take. [`expired`] samples
//! those that have expired. Nothing else of this is exported: it is a question, not a metric.

mod allocator;
mod databases;
mod dict;
mod entry;
pub mod expired;
mod layout;
mod members;
mod memory;
mod object;
mod sampler;
mod summary;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod value;

use std::time::{Duration, SystemTime};

use anyhow::bail;
use evictscope_host::{Identity, Scheduling, load_bias};
use evictscope_plan::{Member, ProbePlan};
use evictscope_telemetry::KeyClock;
use regex::bytes::Regex;
use rustix::process::setpriority_process;

use self::databases::Databases;
pub use self::memory::{Memory, Walk};
pub use self::summary::{Row, Summary, Use};
use crate::process::Running;

/// It gives way to everything else on the host, and still gets a tenth of a core beside a busy loop.
const NICE: i32 = 10;
/// `child_pid` while there is no child: -1.
const NO_CHILD: u32 = u32::MAX;

/// What to find out.
pub struct Question {
    /// The process.
    pub pid: u32,
    /// How many keys to look at.
    pub samples: u32,
    /// For how long.
    pub length: Duration,
    /// What to group by: the first group of this in the key's name. Without it no name is read.
    pub by: Option<Regex>,
}

/// Returns how many keys a server has in all databases. Its executable has `plan` and was loaded with `bias`. Returns `None` if
/// the layout of its version is not known, or a table is about to change.
pub fn count(memory: &Memory, plan: &ProbePlan, bias: u64) -> Option<u64> {
    let databases = Databases::find(memory, plan, bias).ok()?;
    Some(databases.keys())
}

/// Looks at random keys of a server.
///
/// # Errors
///
/// Fails if something is not there, and says what to do.
pub fn answer(question: &Question) -> anyhow::Result<Summary> {
    // It may be forbidden, and is only a courtesy.
    let _ = setpriority_process(None, NICE);
    let process = Running::find(question.pid)?;
    let plan = process.plan(None, &[])?.plan;
    let bias = load_bias(question.pid, plan.identity.entry_point)?;
    let memory = Memory::open(question.pid, Walk::Tables)?;
    let identity = process.handle.identity();
    let used = use_of(&memory, &plan, bias, identity);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let started = now.saturating_sub(identity.age()).as_secs();
    let databases = Databases::find(&memory, &plan, bias);
    if process.handle.has_ended() {
        bail!("process {} has ended", question.pid);
    }
    let drawn = sampler::draw(&memory, &databases?, question, started);
    if process.handle.has_ended() {
        bail!("process {} has ended meanwhile", question.pid);
    }
    Ok(Summary::of(&drawn?, used))
}

/// Returns what a server notes of the use of its keys.
fn use_of(memory: &Memory, plan: &ProbePlan, bias: u64, process: &Identity) -> Use {
    let (pid, age) = (process.pid, process.age());
    let word = |member| memory.u64(plan.member(member)?.address.at(bias).get());
    let policy =
        word(Member::MaxmemoryPolicy).map(|policy| KeyClock::of(policy & u64::from(u32::MAX)));
    // If its role was not found, the memory of the link to the primary shows it.
    let link = plan.member(Member::StatClientsTypeMemory);
    let link = || {
        memory
            .words::<4>(link?.address.at(bias).get())
            .map(|[.., primary]| primary)
    };
    let is_replica = word(Member::Masterhost)
        .or_else(link)
        .map(|primary| primary != 0);
    let own = word(Member::ChildPid).map(|pid| pid as u32 != NO_CHILD);
    let has_child = own.or_else(|| Some(Scheduling::of(pid)?.child_ns().is_some()));
    match (policy, is_replica, has_child) {
        (Some(KeyClock::Counter), ..) => Use::Counter,
        (Some(KeyClock::Writes), ..) => Use::Written(age.as_secs()),
        (Some(KeyClock::Reads), Some(false), Some(false)) => Use::Used(age.as_secs()),
        (_, Some(true), _) => {
            Use::Unknown("a replica does not see what clients of its primary read")
        }
        (.., Some(true)) => Use::Unknown("while it saves, a server does not note what is read"),
        _ => Use::Unknown("whether it notes what is read was not found"),
    }
}
