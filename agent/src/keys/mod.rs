//! `evictscope keys`: what fills a server's cache, from random entries of its hash tables.
//!
//! [`layout`] says how versions differ, [`databases`] finds the databases, [`tables`] has their hash tables, [`dict`] reads one,
//! [`value`] says how large a value is, and [`sampler`] draws. What is drawn becomes a [`Summary`]. Everything is read from the
//! memory of a running server: what is inconsistent is left out and counted.
//!
//! Deliberately absent: anything that is exported. This is a question, not a metric. For a watched server, [`count`] counts the
//! keys: how large they are shows what evicting them would take.

mod allocator;
mod databases;
mod dict;
mod entry;
mod layout;
mod members;
mod memory;
mod object;
mod sampler;
mod summary;
mod table;
mod tables;
mod value;

use std::time::Duration;

use anyhow::bail;
use evictscope_host::load_bias;
use evictscope_plan::{Member, ProbePlan};
use regex::bytes::Regex;
use rustix::process::setpriority_process;

use self::databases::Databases;
pub use self::memory::Memory;
pub use self::summary::{Row, Summary};
use crate::process::Running;

/// It gives way to everything else on the host, and still gets a tenth of a core beside a busy loop.
const NICE: i32 = 10;
/// The bit of `maxmemory_policy` that says that keys have counters instead of idle times: `MAXMEMORY_FLAG_LFU`.
const LFU: u64 = 1 << 1;

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
    let memory = Memory::open(question.pid)?;
    let policy = plan.member(Member::MaxmemoryPolicy);
    let policy = policy.and_then(|policy| memory.u64(policy.address.at(bias).get()));
    let databases = Databases::find(&memory, &plan, bias);
    if process.handle.has_ended() {
        bail!("process {} has ended", question.pid);
    }
    let drawn = sampler::draw(&memory, &databases?, question);
    if process.handle.has_ended() {
        bail!("process {} has ended meanwhile", question.pid);
    }
    Ok(Summary::of(&drawn?, policy.map(|policy| policy & LFU != 0)))
}
