//! The server's own counters.

use serde::{Deserialize, Serialize};

/// Values read together from a server's memory; one that is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Members {
    /// `server.maxmemory`, bytes.
    pub maxmemory: Option<u64>,
    /// `server.maxmemory_policy`: see [`policy_name`].
    pub maxmemory_policy: Option<u32>,
    /// `server.stat_numcommands`.
    pub commands: Option<u64>,
    /// `server.stat_evictedkeys`.
    pub evicted_keys: Option<u64>,
    /// `server.stat_expiredkeys`.
    pub expired_keys: Option<u64>,
    /// `server.stat_clients_type_memory[]`.
    pub client_buffers: Option<ClientBuffers>,
    /// The allocator's counter, bytes.
    pub used_memory: Option<u64>,
    /// `server.config_hz`: rounds of the cron a second, as configured.
    pub hz: Option<u32>,
    /// `server.active_expire_effort`, 1 to 10.
    pub active_expire_effort: Option<u32>,
    /// What keys with a time to live do to the server.
    pub expiry: ExpiryMembers,
}

/// What a server counts and is told of keys with a time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpiryMembers {
    /// The server's own estimate of the share of keys with a time to live that have expired and are still held,
    /// from 0 to 1: `server.stat_expired_stale_perc`, a moving average over expire cycles.
    pub stale_ratio: Option<f64>,
    /// Expire cycles that ended at their time limit: `server.stat_expired_time_cap_reached_count`.
    pub time_limit_hits: Option<u64>,
    /// Time in expire cycles, microseconds: `server.stat_expire_cycle_time_used`.
    pub cycle_us: Option<u64>,
}

/// Returns the name, as `CONFIG` has it, of a policy with this number (server.h: `MAXMEMORY_VOLATILE_LRU` and the
/// others, the same since Redis 4.0; the last two are of Redis 8.4 and later). `None` for one that is not known.
pub fn policy_name(number: u32) -> Option<&'static str> {
    const LRU: u32 = 1 << 0;
    const LFU: u32 = 1 << 1;
    const ALLKEYS: u32 = 1 << 2;
    const LRM: u32 = 1 << 3;
    const NAMES: [(u32, &str); 10] = [
        (LRU, "volatile-lru"),
        (1 << 8 | LFU, "volatile-lfu"),
        (2 << 8, "volatile-ttl"),
        (3 << 8, "volatile-random"),
        (4 << 8 | LRU | ALLKEYS, "allkeys-lru"),
        (5 << 8 | LFU | ALLKEYS, "allkeys-lfu"),
        (6 << 8 | ALLKEYS, "allkeys-random"),
        (7 << 8, "noeviction"),
        (8 << 8 | LRM, "volatile-lrm"),
        (9 << 8 | LRM | ALLKEYS, "allkeys-lrm"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map(|(_, name)| *name)
}

/// What the server accounts to its clients, by type, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Returns all client buffers, bytes. Wraps, as the server's own counters do.
    pub fn total(self) -> u64 {
        let types = [self.normal, self.replica, self.pubsub, self.primary];
        types.into_iter().fold(0, u64::wrapping_add)
    }
}
