//! The last values read from a server's memory. What could not be read is `None`, never 0.

use evictscope_abi::{Member, MemberValues};

/// The last values read together from a server's memory.
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
    /// All client buffers, bytes. Wraps, as the kernel's own addition does.
    pub fn total(self) -> u64 {
        [self.replica, self.pubsub, self.primary]
            .into_iter()
            .fold(self.normal, u64::wrapping_add)
    }
}

impl Members {
    /// Returns a reading; `None` if nothing was read yet.
    pub(super) fn read(values: &MemberValues) -> Option<Self> {
        (values.read_ns != 0).then_some(Self(*values))
    }

    /// Monotonic time of reading, nanoseconds.
    pub fn read_ns(&self) -> u64 {
        self.0.read_ns
    }

    /// A member's value, where it was read.
    pub fn get(&self, member: Member) -> Option<u64> {
        let index = member as usize;
        (self.0.known >> index & 1 == 1).then(|| self.0.values[index])
    }

    /// The allocator's counter, bytes, where it was read.
    pub fn used_memory(&self) -> Option<u64> {
        (self.0.used_memory_known == 1).then_some(self.0.used_memory)
    }

    /// Client buffers, where all types were read: they are one array, so a part of it alone would
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
