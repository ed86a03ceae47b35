//! Reads what a server's memory is made of: the parts that `getMemoryOverheadData()` would add up, without its help.
//!
//! Of the hash tables, only the places are a part: their entries belong to the keys. The memory of functions, of the
//! tracking table, of values that are freed lazily and of those that replies point to is not read: it is in the rest.
//!
//! Second observers: `mem_*` and `used_memory_*` of `INFO`, and `MEMORY STATS`. Tests compare with both; nothing does
//! while the agent runs.

use std::time::Duration;

use evictscope_model::Member;
use evictscope_plan::ProbePlan;
use evictscope_telemetry::{MemberValues, MemoryPart, MemoryParts};

use super::expired::REST;
use super::not_counted;
use crate::clock::monotonic;
use crate::keys::{Databases, Dict, KeyspaceLayout, Memory, Walk};

/// The shortest time between two readings; and while the server evicts, or requests wait.
const INTERVAL: Duration = Duration::from_millis(990);
const PRESSING_INTERVAL: Duration = Duration::from_millis(250);
/// The same between two searches for the databases, and two readings of all tables of a server that stays calm.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of an entry of a hash table, of a node of a list, of a node of a radix tree, and of a pointer.
const ENTRY: u64 = 24;
const LIST_NODE: u64 = 24;
const RAX_NODE: u64 = 4;
const POINTER: u64 = 8;
/// Where a `replBacklog` has the pointer to its index.
const INDEX: u64 = 16;

/// What a server does at a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Hardly anything.
    Calm,
    Usual,
    /// It evicts, or requests wait.
    Pressing,
}

/// Reads them, again and again.
#[derive(Default)]
pub struct PartsReader {
    /// The databases, once they were found; and when they were last searched for.
    databases: Option<Databases>,
    searched: Duration,
    /// The bytes of all tables and how many keys there were, of a server that has been calm since; and when.
    calm: Option<(Duration, (u64, u64))>,
    /// When it last read, and for how long it does not from then on.
    begun: Duration,
    pause: Duration,
}

impl PartsReader {
    /// Reads the parts, if that is due. `members` have just been read from `memory`, of a server with this plan.
    pub fn read(
        &mut self,
        at: Duration,
        memory: &Memory,
        members: &MemberValues,
        plan: &ProbePlan,
        load_bias: u64,
        activity: Activity,
    ) -> Option<MemoryParts> {
        if activity != Activity::Calm {
            self.calm = None;
        }
        let interval = if activity == Activity::Pressing { PRESSING_INTERVAL } else { INTERVAL };
        if at.saturating_sub(self.begun) < interval.max(self.pause) {
            return None;
        }
        self.begun = at;
        let source = Source { memory, members, plan, load_bias, layout: KeyspaceLayout::of(&plan.identity).ok() };
        let known = self.calm.filter(|(read, _)| at.saturating_sub(*read) < SEARCH_INTERVAL).map(|(_, tables)| tables);
        let tables = known.or_else(|| self.tables(at, &source));
        if known.is_none() && activity == Activity::Calm {
            self.calm = tables.map(|tables| (at, tables));
        }
        let parts = source.parts(tables);
        // What took long is done the less often.
        self.pause = REST * monotonic().saturating_sub(at);
        parts
    }

    /// Returns the bytes of all tables of keys and of times to live, and how many keys there are.
    fn tables(&mut self, at: Duration, source: &Source<'_>) -> Option<(u64, u64)> {
        let memory = source.memory.another(Walk::Tables);
        if self.databases.is_none() && at.saturating_sub(self.searched) >= SEARCH_INTERVAL {
            self.searched = at;
            self.databases = Databases::find(&memory, source.plan, source.load_bias).ok();
        }
        let databases = self.databases.as_ref()?;
        let keys = databases.tables(&memory);
        // Where times to live lie with their values, there are tables of those that have one all the same.
        let others = match databases.layout.object.expires {
            0 => Some(0),
            _ => databases.expiring(&memory).map(|expiring| expiring.bytes()),
        };
        // Their number may have changed: they are searched for again.
        self.databases.take_if(|_| keys.is_none());
        keys.zip(others).map(|(keys, others)| (keys.bytes() + others, keys.used()))
    }
}

/// What the parts are read from.
struct Source<'a> {
    memory: &'a Memory,
    members: &'a MemberValues,
    plan: &'a ProbePlan,
    load_bias: u64,
    /// `None` if the version is not known.
    layout: Option<&'static KeyspaceLayout>,
}

impl Source<'_> {
    fn parts(&self, tables: Option<(u64, u64)>) -> Option<MemoryParts> {
        let get = |member| self.members.get(member);
        let (backlog, replicas) = self.replication().unzip();
        let clients = self.members.client_buffers();
        let parts = [
            (MemoryPart::Startup, get(Member::InitialMemoryUsage)),
            (MemoryPart::ClientsNormal, clients.map(|clients| clients.normal)),
            (MemoryPart::ClientsPubsub, clients.map(|clients| clients.pubsub)),
            (MemoryPart::ClientsPrimary, clients.map(|clients| clients.primary)),
            (MemoryPart::Replicas, replicas),
            (MemoryPart::Backlog, backlog),
            (MemoryPart::AofBuffer, not_counted::aof(self.memory, self.members, self.plan, self.load_bias)),
            (MemoryPart::ClusterLinks, get(Member::StatClusterLinksMemory)),
            (MemoryPart::Scripts, self.scripts()),
            (MemoryPart::Tables, tables.map(|(bytes, _)| bytes)),
        ];
        let mut memory = MemoryParts::new(get(Member::UsedMemory)?, parts);
        memory.keys = tables.map(|(_, keys)| keys);
        memory.tracked_keys = get(Member::TrackingTable).and_then(|table| self.tree(table)).map(|(keys, _)| keys);
        memory.tracked_items = get(Member::TrackingTableTotalItems);
        memory.being_freed = get(Member::LazyfreeObjects);
        Some(memory)
    }

    /// Returns what the backlog takes, and what the buffers of replicas take beyond it. Since Redis 7.0 they share one
    /// buffer.
    fn replication(&self) -> Option<(u64, u64)> {
        let get = |member| self.members.get(member);
        let (size, backlog) = (get(Member::ReplBacklogSize)?, get(Member::ReplBacklog)?);
        let Some(shared) = get(Member::ReplBufferMem) else {
            let replicas = self.members.client_buffers()?.replica;
            return Some((if backlog == 0 { 0 } else { size }, replicas));
        };
        let index = match backlog {
            0 => 0,
            _ => {
                let (keys, nodes) = self.tree(self.memory.u64(backlog.checked_add(INDEX)?)?)?;
                keys.checked_mul(POINTER)?.checked_add(nodes.checked_mul(RAX_NODE)?)?
            }
        };
        let has_replicas = shared > size && self.list(get(Member::Slaves)?)? > 0;
        let replicas = if has_replicas { shared - size } else { 0 };
        Some(((shared - replicas).checked_add(index)?, replicas))
    }

    /// Returns what `evalScriptsMemory()` would.
    fn scripts(&self) -> Option<u64> {
        let get = |member| self.members.get(member);
        let layout = self.layout?;
        if let (Some(scripts), Some(bytes)) = (get(Member::LuaScripts), get(Member::LuaScriptsMem)) {
            let fifo = get(Member::ReplScriptcacheFifo)?;
            // Each has the name of a script, of 40 letters: 43 bytes.
            let names = self.list(fifo)?.checked_mul(LIST_NODE + 48)?;
            let sent = self.dict(get(Member::ReplScriptcacheDict)?, 0)?;
            return bytes.checked_add(self.dict(scripts, 0)?)?.checked_add(sent)?.checked_add(names);
        }
        let context = self.plan.member(Member::EvalContext)?.address.at(self.load_bias).get();
        let words: [u64; 5] = self.memory.words(context)?;
        let (scripts, list, bytes, script) = match layout {
            layout if layout.buckets.is_some() => (words[0], Some(words[1]), words[2], 40),
            layout if layout.store.is_some() => (words[2], Some(words[3]), words[4], 24),
            _ => (words[2], None, words[3], 16),
        };
        let recent = list.map_or(Some(0), |list| self.list(list))?.checked_mul(LIST_NODE)?;
        bytes.checked_add(self.dict(scripts, script)?)?.checked_add(recent)
    }

    /// Returns what a hash table takes whose entries take `value` bytes beside themselves.
    fn dict(&self, address: u64, value: u64) -> Option<u64> {
        let dict = Dict::read(self.memory, self.layout?.others(), address)?;
        Some(dict.used() * (ENTRY + value) + dict.size() * POINTER)
    }

    /// Returns the length of a `list` of adlist.h.
    fn list(&self, address: u64) -> Option<u64> {
        not_counted::length(self.memory, address).filter(|length| *length < 1 << 32)
    }

    /// Returns how many keys and nodes a radix tree has; none if there is no tree.
    fn tree(&self, address: u64) -> Option<(u64, u64)> {
        if address == 0 {
            return Some((0, 0));
        }
        let [_, keys, nodes] = self.memory.words(address)?;
        (keys <= nodes && nodes < 1 << 40).then_some((keys, nodes))
    }
}
