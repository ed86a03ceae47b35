//! What was read of one server at one moment.

use evictscope_abi::{CallStats, EvictionStats, FaultCounts, Member, MemberValues, SampleStats};

/// What was read of one server at one moment. Its counters run since the server was attached to,
/// modulo 2^64.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What was counted of each traced function's calls, the eviction call first.
    pub calls: Vec<CallStats>,
    /// What else was counted of eviction calls.
    pub evictions: EvictionStats,
    /// What the sampling program counted.
    pub samples: SampleStats,
    /// What the programs could not read or count.
    pub faults: FaultCounts,
    /// The members as the agent read them itself, where the main thread was off CPU for so long
    /// that the kernel's own reading is stale.
    pub idle_members: Option<MemberValues>,
}

/// The last values read together from a server's memory; a value that could not be read is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members(MemberValues);

/// What the server accounts to its clients, by type, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBuffers {
    /// All other clients.
    pub normal: u64,
    /// Replicas that are fed by this server.
    pub replica: u64,
    /// Subscribers.
    pub pubsub: u64,
    /// The link to the primary of this server.
    pub primary: u64,
}

impl ClientBuffers {
    /// Returns all client buffers, bytes. Wraps, as the kernel's own addition does.
    pub fn total(self) -> u64 {
        let types = [self.normal, self.replica, self.pubsub, self.primary];
        types.into_iter().fold(0, u64::wrapping_add)
    }
}

impl Members {
    /// Returns a reading; `None` if nothing was read yet.
    pub(super) fn read(values: &MemberValues) -> Option<Self> {
        (values.read_ns != 0).then_some(Self(*values))
    }

    /// Returns the monotonic time of reading, nanoseconds.
    pub fn read_ns(&self) -> u64 {
        self.0.read_ns
    }

    /// Returns a member's value, where it was read.
    pub fn get(&self, member: Member) -> Option<u64> {
        let index = member as usize;
        (self.0.known >> index & 1 == 1).then(|| self.0.values[index])
    }

    /// Returns the allocator's counter, bytes, where it was read.
    pub fn used_memory(&self) -> Option<u64> {
        (self.0.used_memory_known == 1).then_some(self.0.used_memory)
    }

    /// Returns the client buffers, where all types were read: they are one array, so a part of it alone would
    /// mean that something is wrong.
    pub fn client_buffers(&self) -> Option<ClientBuffers> {
        Some(ClientBuffers {
            normal: self.get(Member::ClientsNormal)?,
            replica: self.get(Member::ClientsReplica)?,
            pubsub: self.get(Member::ClientsPubsub)?,
            primary: self.get(Member::ClientsPrimary)?,
        })
    }
}
