//! How the server is configured, and what its clients ask for.
//!
//! The documentation of the [crate] says what the numbers are for.

use serde::Serialize;

use crate::{lives::Lives, scenario::Scenario, workload::Mix};

/// All that may differ between two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Clients.
    pub connections: usize,
    /// Requests under way on one connection, at most.
    pub most_under_way: usize,
    /// The server's limit, in bytes.
    pub maxmemory: u64,
    /// How far the limit under load is above the memory that is used when the load begins, in bytes; `None` if it is `maxmemory`.
    pub room: Option<u64>,
    /// The server's `maxmemory-policy`.
    pub policy: &'static str,
    /// The server's `maxmemory-eviction-tenacity`: how long an eviction call may take.
    pub tenacity: u32,
    /// The server's `maxmemory-samples`: keys that it looks at to choose one to evict.
    pub samples: u32,
    /// The server's `active-expire-effort`: how much the expire cycle may do.
    pub effort: u32,
    /// The server's `maxmemory-clients`: when it disconnects clients, in bytes.
    pub clients_limit: u64,
    /// The server's `lazyfree-lazy-eviction`: whether another thread frees the large keys that it evicts.
    pub lazy_eviction: bool,
    /// The clients' requests.
    pub mix: Mix,
    /// How busy the main thread is to be below the limit: the share of the time for which it is on a CPU.
    pub busy: f64,
    /// What the server holds at the beginning of the load.
    pub filled: Filled,
    /// Fields of a hash that is written before all other keys; 0 for no such key.
    pub big_key_fields: u64,
    /// The server's `repl-backlog-size`, in bytes.
    pub backlog: u64,
    /// The server's `client-output-buffer-limit` of subscribers.
    pub subscribers_limit: &'static str,
    /// Whether processes that the server forks are kept from its core.
    pub forks_elsewhere: bool,
    /// What comes besides the clients.
    pub visitor: Option<Visitor>,
}

/// What a server holds at the beginning of the load.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "filled", rename_all = "snake_case")]
pub enum Filled {
    /// This much used memory.
    Memory {
        /// In bytes.
        bytes: u64,
    },
    /// As many keys as are written in the mean time to live, and no expired one. That time follows from this number.
    Alive {
        /// Keys.
        keys: u64,
    },
    /// So many keys that the hash tables of the keys double soon.
    Table {
        /// The buckets of the tables before that, a power of 2.
        buckets: u64,
        /// When they double, in seconds of load.
        after: f64,
    },
}

/// What comes to the server once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Visitor {
    /// When, in seconds of load.
    pub after: f64,
    /// What it is.
    pub what: What,
}

/// What comes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// A replica that asks for all data and then reads nothing, like one behind a slow network: what the server writes for
    /// it piles up in the buffers that replicas and the replication backlog share.
    Replica,
    /// Subscribers that read nothing, and a client that publishes.
    Subscribers,
    /// The end of many keys that were written before.
    Pile {
        /// The longest that a key lives on, in seconds; how long is random.
        spread: f64,
    },
    /// A process that writes all data to a file (`BGSAVE`).
    Fork,
    /// Busy processes on the server's core.
    Neighbour {
        /// Their nice value.
        nice: u8,
    },
}

const MIB: u64 = 1024 * 1024;

const BURST: Parameters = Parameters {
    connections: 3000,
    most_under_way: 2,
    maxmemory: 325 * MIB,
    room: None,
    policy: "volatile-lru",
    samples: 64,
    tenacity: 10,
    effort: 1,
    clients_limit: 4096 * MIB,
    lazy_eviction: false,
    mix: Mix {
        set_share: 0.8,
        keys_per_write: 1,
        value_bytes: 200,
        keys_per_read: 200,
        read_window: 300_000,
        rewrites: false,
        lives: Lives::Even { mean: 900.0 },
    },
    busy: 0.45,
    filled: Filled::Memory { bytes: 285 * MIB },
    big_key_fields: 0,
    backlog: MIB,
    subscribers_limit: "pubsub 32mb 8mb 60",
    forks_elsewhere: true,
    visitor: None,
};

const STEADY: Parameters = Parameters {
    connections: 200,
    maxmemory: 128 * MIB,
    policy: "allkeys-lru",
    samples: 5,
    busy: 0.3,
    // The recorder's connections take 14 MiB more.
    filled: Filled::Memory { bytes: 112 * MIB },
    mix: Mix {
        set_share: 0.5,
        keys_per_read: 5,
        read_window: 100_000,
        ..BURST.mix
    },
    ..BURST
};

const EXPIRE: Parameters = Parameters {
    connections: 1000,
    maxmemory: 8192 * MIB,
    policy: "noeviction",
    mix: Mix {
        set_share: 0.9,
        keys_per_write: 100,
        value_bytes: 50,
        keys_per_read: 100,
        read_window: 100_000,
        rewrites: false,
        lives: Lives::One { seconds: 5.0 },
    },
    busy: 0.75,
    filled: Filled::Memory { bytes: 64 * MIB },
    ..BURST
};

/// The clients overwrite keys, so that the data does not grow.
const REWRITES: Parameters = Parameters {
    connections: 1000,
    maxmemory: 2048 * MIB,
    busy: 0.65,
    room: Some(24 * MIB),
    mix: Mix {
        set_share: 0.8,
        keys_per_read: 20,
        read_window: 100_000,
        rewrites: true,
        lives: Lives::Even { mean: 90_000.0 },
        ..BURST.mix
    },
    ..BURST
};

impl Parameters {
    /// Returns what a scenario asks of the server.
    pub fn of(scenario: Scenario) -> Self {
        match scenario {
            Scenario::Burst | Scenario::Remedy => BURST,
            Scenario::Healthy => Self {
                maxmemory: 2048 * MIB,
                ..BURST
            },
            Scenario::Steady => STEADY,
            Scenario::Expire => EXPIRE,
            Scenario::Stale => Self {
                maxmemory: 2048 * MIB,
                room: Some(34 * MIB),
                filled: Filled::Alive { keys: 1_800_000 },
                ..BURST
            },
            Scenario::BigKey => Self {
                maxmemory: 1024 * MIB,
                room: Some(40 * MIB),
                samples: 64,
                big_key_fields: 4_000_000,
                filled: Filled::Memory { bytes: 380 * MIB },
                ..STEADY
            },
            Scenario::Table => Self {
                maxmemory: 2048 * MIB,
                room: Some(8 * MIB),
                policy: "volatile-lru",
                samples: 64,
                busy: 0.65,
                mix: Mix {
                    set_share: 0.03,
                    lives: Lives::Even { mean: 90_000.0 },
                    ..STEADY.mix
                },
                filled: Filled::Table {
                    buckets: 1 << 20,
                    after: 12.0,
                },
                ..STEADY
            },
            Scenario::Replication => Self {
                backlog: 64 * MIB,
                visitor: visitor(10.0, What::Replica),
                ..REWRITES
            },
            Scenario::Subscribers => Self {
                busy: 0.4,
                visitor: visitor(10.0, What::Subscribers),
                ..REWRITES
            },
            Scenario::PileUp => Self {
                connections: BURST.connections,
                room: None,
                visitor: visitor(35.0, What::Pile { spread: 0.0 }),
                ..REWRITES
            },
            Scenario::Fork => Self {
                connections: BURST.connections,
                maxmemory: 512 * MIB,
                filled: Filled::Memory { bytes: 490 * MIB },
                busy: 0.7,
                forks_elsewhere: false,
                visitor: visitor(20.0, What::Fork),
                ..STEADY
            },
            Scenario::Neighbour => Self {
                connections: BURST.connections,
                maxmemory: 2048 * MIB,
                busy: 0.7,
                visitor: visitor(20.0, What::Neighbour { nice: 0 }),
                ..STEADY
            },
        }
    }

    /// Returns whether the server is to share its core.
    pub fn shares_core(&self) -> bool {
        let what = self.visitor.map(|visitor| visitor.what);
        matches!(what, Some(What::Neighbour { .. })) || !self.forks_elsewhere
    }
}

const fn visitor(after: f64, what: What) -> Option<Visitor> {
    Some(Visitor { after, what })
}
