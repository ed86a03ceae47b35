//! Reads what a server's memory is made of: the parts that `getMemoryOverheadData()` would add up, without its help.
//! And how much of it does not count against `maxmemory` now: what `freeMemoryGetNotCountedMemory()` would return.
//!
//! Of the hash tables, only the places are a part: their entries belong to the keys. The memory of functions, of the
//! tracking table, of values that are freed lazily and of those that replies point to is not read: it is in the rest.
//!
//! Not known of what does not count are the buffers of slots that a cluster is moving, which Redis 8.4 and Valkey 9 do
//! not count either.
//!
//! Second observers: `mem_*` and `used_memory_*` of `INFO`, `MEMORY STATS`, and `overhead` at each evicting call. Tests
//! compare with all; nothing does while the agent runs.

use std::time::Duration;

use evictscope_model::Member;
use evictscope_plan::ProbePlan;
use evictscope_telemetry::{MemberValues, MemoryPart, MemoryParts};

use super::expired::REST;
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
/// How often it is tried to read what the server is just changing.
const ATTEMPTS: usize = 3;
/// Nothing is read of longer lists: a gigabyte of changes in blocks of 10 MB, and more replicas than one server feeds.
const LONGEST_LIST: u64 = 128;
/// What `getClientOutputBufferMemoryUsage()` adds for each block of replies: a `listNode` and a `clientReplyBlock`.
const OF_A_REPLY: u64 = 24 + 16;

/// What a server does at a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Hardly anything.
    Calm,
    Usual,
    /// It evicts, or requests wait.
    Pressing,
}

/// All tables of keys and of times to live.
#[derive(Clone, Copy)]
struct Tables {
    bytes: u64,
    keys: u64,
    /// Keys that have a time to live.
    expiring: u64,
}

/// Reads them, again and again.
#[derive(Default)]
pub struct PartsReader {
    /// The databases, once they were found; and when they were last searched for.
    databases: Option<Databases>,
    searched: Duration,
    /// Its tables, of a server that has been calm since; and when.
    calm: Option<(Duration, Tables)>,
    /// When it last read, and for how long it does not from then on.
    begun: Duration,
    pause: Duration,
}

impl PartsReader {
    /// Reads the parts, if that is due.
    pub fn read(&mut self, at: Duration, source: &MemorySource<'_>, activity: Activity) -> Option<MemoryParts> {
        if activity != Activity::Calm {
            self.calm = None;
        }
        let interval = if activity == Activity::Pressing { PRESSING_INTERVAL } else { INTERVAL };
        if at.saturating_sub(self.begun) < interval.max(self.pause) {
            return None;
        }
        self.begun = at;
        let known = self.calm.filter(|(read, _)| at.saturating_sub(*read) < SEARCH_INTERVAL).map(|(_, tables)| tables);
        let tables = known.or_else(|| self.tables(at, source));
        if known.is_none() && activity == Activity::Calm {
            self.calm = tables.map(|tables| (at, tables));
        }
        let parts = source.parts(tables);
        // What took long is done the less often.
        self.pause = REST * monotonic().saturating_sub(at);
        parts
    }

    fn tables(&mut self, at: Duration, source: &MemorySource<'_>) -> Option<Tables> {
        let memory = source.memory.another(Walk::Tables);
        if self.databases.is_none() && at.saturating_sub(self.searched) >= SEARCH_INTERVAL {
            self.searched = at;
            self.databases = Databases::find(&memory, source.plan, source.load_bias).ok();
        }
        let databases = self.databases.as_ref()?;
        let keys = databases.tables(&memory);
        // Where times to live lie with their values, there are tables of those that have one all the same.
        let others = match databases.layout.object.expires {
            0 => keys.as_ref().map(|keys| (0, keys.expiring())),
            _ => databases.expiring(&memory).map(|expiring| (expiring.bytes(), expiring.used())),
        };
        // Their number may have changed: they are searched for again.
        self.databases.take_if(|_| keys.is_none());
        keys.zip(others).map(|(keys, (others, expiring))| Tables {
            bytes: keys.bytes() + others,
            keys: keys.used(),
            expiring,
        })
    }
}

/// What they are read from.
pub struct MemorySource<'a> {
    pub memory: &'a Memory,
    /// They have just been read from it.
    pub members: &'a MemberValues,
    pub plan: &'a ProbePlan,
    pub load_bias: u64,
    /// `None` if the version is not known.
    pub layout: Option<&'static KeyspaceLayout>,
}

impl MemorySource<'_> {
    /// Returns how much does not count, bytes; `None` if it is not known.
    pub fn not_counted(&self) -> Option<u64> {
        let replicas = self.members.replicas_not_counted().or_else(|| self.output_buffers())?;
        let sum = replicas.checked_add(self.aof()?)?;
        (sum <= self.members.get(Member::UsedMemory)?).then_some(sum)
    }

    /// Returns the output buffers of the replicas of a Redis 6.
    fn output_buffers(&self) -> Option<u64> {
        self.sum_of_list(self.members.get(Member::Slaves)?, |client| {
            let [list, bytes] = self.memory.words(client.checked_add(self.plan.identity.client_replies()?)?)?;
            bytes.checked_add(self.list(list)?.checked_mul(OF_A_REPLY)?)
        })
    }

    /// Returns what waits to be written to the AOF, bytes.
    fn aof(&self) -> Option<u64> {
        if self.members.get(Member::AofEnabled)? == 0 {
            return Some(0);
        }
        let address = self.plan.member(Member::AofBuf)?.address.at(self.load_bias).get();
        (0..ATTEMPTS).find_map(|_| self.aof_buffer(address))
    }

    /// Returns what waits to be written to the AOF, and, in Redis 6, to the process that rewrites it. The server frees
    /// a large buffer when it has written it, so what `address` points to must still be there afterwards.
    fn aof_buffer(&self, address: u64) -> Option<u64> {
        let at = self.memory.u64(address)?;
        let buffer = self.memory.string(at)?;
        if self.memory.u64(address)? != at {
            return None;
        }
        match self.members.get(Member::AofRewriteBufBlocks) {
            Some(blocks) if self.members.get(Member::ReplBufferMem).is_none() => {
                buffer.space.checked_add(self.sum_of_list(blocks, |block| self.memory.u64(block))?)
            }
            _ => Some(buffer.allocated()),
        }
    }

    /// Adds up something about each value of a `list`; `None` if the list is long, or changes meanwhile.
    fn sum_of_list(&self, list: u64, of: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let all = self.list(list).filter(|all| *all <= LONGEST_LIST)?;
        let (mut node, mut sum) = (self.memory.u64(list)?, 0_u64);
        for _ in 0..all {
            let [_, next, value] = self.memory.words(node)?;
            sum = sum.checked_add(of(value)?)?;
            node = next;
        }
        (node == 0 && self.list(list) == Some(all)).then_some(sum)
    }

    fn parts(&self, tables: Option<Tables>) -> Option<MemoryParts> {
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
            (MemoryPart::AofBuffer, self.aof()),
            (MemoryPart::ClusterLinks, get(Member::StatClusterLinksMemory)),
            (MemoryPart::Scripts, self.scripts()),
            (MemoryPart::Tables, tables.map(|tables| tables.bytes)),
        ];
        let mut memory = MemoryParts::new(get(Member::UsedMemory)?, parts);
        (memory.keys, memory.expiring_keys) = tables.map(|tables| (tables.keys, tables.expiring)).unzip();
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
        let tree = if backlog == 0 { 0 } else { self.memory.u64(backlog.checked_add(INDEX)?)? };
        let (keys, nodes) = self.tree(tree)?;
        let index = keys.checked_mul(POINTER)?.checked_add(nodes.checked_mul(RAX_NODE)?)?;
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
        self.memory.u64(address.checked_add(40)?).filter(|length| *length < 1 << 32)
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
