//! The scenarios and the remedies, as rows: how the server is configured, what its clients ask for, how long that
//! lasts, and what a remedy changes.
//!
//! The documentation of the [crate] says what the numbers are for.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::workload::Mix;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// The three-phase cycle, several times over
    Burst,
    /// Evictions all the time, calmly
    Steady,
    /// Keys expire faster than the active expire cycle finds them
    Expire,
    /// One key of millions of fields is evicted in the main thread
    BigKey,
    /// The hash tables of the keys double right below the limit
    Table,
    /// Writes pile up for a replica in its first synchronisation
    Replication,
    /// Messages pile up for subscribers that do not read
    Subscribers,
    /// Two million keys expire at once
    PileUp,
    /// A scenario without and with a remedy
    Remedy,
}

pub struct RunPlan {
    pub name: String,
    pub parameters: Parameters,
    /// Requests a second. By default this is a share of the measured capacity.
    pub rate: Option<f64>,
    /// The executable of the agent that watches it.
    pub agent: Option<PathBuf>,
}

/// Returns the name of a scenario or a remedy on the command line.
pub fn name_of(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// All that may differ between two runs.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    pub connections: usize,
    /// Requests under way on one connection, at most.
    pub most_under_way: usize,
    pub maxmemory: u64,
    /// How far the limit under load is above the memory that is used when the load begins, in bytes; `None` if it is
    /// `maxmemory`.
    pub room: Option<u64>,
    /// More options of the server, and those that a remedy adds.
    pub options: &'static str,
    pub remedy: &'static str,
    pub mix: Mix,
    /// How busy the main thread is to be below the limit: the share of the time for which it is on a CPU.
    pub busy: f64,
    /// What the server holds at the beginning of the load.
    pub filled: Filled,
    /// Fields of a hash that is written before all other keys; 0 for no such key.
    pub big_key_fields: u64,
    pub visitor: Option<Visitor>,
    /// How long the load lasts at most, in seconds.
    pub seconds: f64,
    /// The number of complete cycles after which the run ends.
    pub cycles: Option<usize>,
    /// Whether keys expire only under load, and what expired keys hold is measured at its end.
    pub measures_expiry: bool,
}

/// What a server holds at the beginning of the load.
#[derive(Clone, Copy, Debug)]
pub enum Filled {
    /// This much used memory.
    Memory { bytes: u64 },
    /// So many keys that the hash tables of the keys double soon.
    Table {
        /// The buckets of the tables before that, a power of 2.
        buckets: u64,
        /// When they double, in seconds of load.
        after: f64,
    },
}

/// What comes to a server under load, besides its clients.
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    /// When it is started, and when that is felt, in seconds of load.
    pub from: f64,
    pub after: f64,
    /// A script for bash. Its arguments are the server's port, the time when the visitor is felt in milliseconds since
    /// 1970, and `spread`. It runs until the load has ended, or to its end.
    pub script: &'static str,
    /// In milliseconds.
    pub spread: u64,
}

const MIB: u64 = 1024 * 1024;

const BURST: Parameters = Parameters {
    connections: 3000,
    most_under_way: 2,
    maxmemory: 325 * MIB,
    room: None,
    options: "--maxmemory-policy volatile-lru --maxmemory-samples 64",
    remedy: "",
    mix: Mix {
        set_share: 0.8,
        keys_per_write: 1,
        value_bytes: 200,
        keys_per_read: 200,
        read_window: 300_000,
        rewrites: false,
        longest_life: 1_800.0,
        lives_differ: true,
    },
    busy: 0.45,
    filled: Filled::Memory { bytes: 285 * MIB },
    big_key_fields: 0,
    visitor: None,
    seconds: 240.0,
    cycles: None,
    measures_expiry: false,
};

const STEADY: Parameters = Parameters {
    connections: 200,
    maxmemory: 128 * MIB,
    options: "--maxmemory-policy allkeys-lru --maxmemory-samples 5",
    busy: 0.3,
    filled: Filled::Memory { bytes: 112 * MIB },
    mix: Mix { set_share: 0.5, keys_per_read: 5, read_window: 100_000, ..BURST.mix },
    seconds: 60.0,
    ..BURST
};

const EXPIRE: Parameters = Parameters {
    connections: 1000,
    maxmemory: 8192 * MIB,
    options: "--maxmemory-policy noeviction",
    mix: Mix {
        set_share: 0.9,
        keys_per_write: 100,
        value_bytes: 50,
        keys_per_read: 100,
        read_window: 100_000,
        rewrites: false,
        longest_life: 5.0,
        lives_differ: false,
    },
    busy: 0.75,
    filled: Filled::Memory { bytes: 64 * MIB },
    seconds: 25.0,
    measures_expiry: true,
    ..BURST
};

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
        longest_life: 180_000.0,
        ..BURST.mix
    },
    seconds: 60.0,
    ..BURST
};

const BIG_KEY: Parameters = Parameters {
    maxmemory: 1024 * MIB,
    room: Some(40 * MIB),
    options: "--maxmemory-policy allkeys-lru --maxmemory-samples 64",
    big_key_fields: 4_000_000,
    filled: Filled::Memory { bytes: 380 * MIB },
    seconds: 40.0,
    ..STEADY
};

const TABLE: Parameters = Parameters {
    maxmemory: 2048 * MIB,
    room: Some(8 * MIB),
    options: BURST.options,
    busy: 0.65,
    mix: Mix { set_share: 0.03, longest_life: 180_000.0, ..STEADY.mix },
    filled: Filled::Table { buckets: 1 << 20, after: 12.0 },
    seconds: 40.0,
    // What comes after the first cycle has another cause.
    cycles: Some(1),
    ..STEADY
};

/// The replica says that all data may come over this connection while the server's child process writes it. Redis
/// refuses one to which it has not sent its last answer.
const REPLICATION: Parameters = Parameters {
    options: "--maxmemory-policy volatile-lru --maxmemory-samples 64 --repl-backlog-size 64mb",
    visitor: Some(Visitor {
        from: 10.0,
        after: 10.0,
        script: r"exec 3<>/dev/tcp/127.0.0.1/$1; printf 'REPLCONF capa eof capa psync2\r\n' >&3; read -r -t 30 <&3
            printf 'PSYNC ? -1\r\n' >&3; exec sleep 999",
        spread: 0,
    }),
    cycles: Some(1),
    ..REWRITES
};

const SUBSCRIBERS: Parameters = Parameters {
    busy: 0.4,
    visitor: Some(Visitor {
        from: 10.0,
        after: 10.0,
        script: r#"for _ in {1..20}; do exec {fd}<>/dev/tcp/127.0.0.1/$1; printf 'SUBSCRIBE news\r\n' >&$fd; done
            exec redis-cli -e -p $1 -r -1 -i 0.1 eval "redis.call('PUBLISH', 'news', string.rep('m', 32768))" 0"#,
        spread: 0,
    }),
    ..REWRITES
};

const PILE: Visitor = Visitor {
    from: 0.0,
    after: 35.0,
    script: r#"exec redis-cli -e -p $1 -r 2000 -i 0.004 eval "local pile = redis.call('INCR', 'pile') for i = 1, 1000 do
        redis.call('SET', 'pile:' .. pile .. ':' .. i, 'value', 'PXAT', ARGV[1] + math.random(0, ARGV[2])) end" 0 $2 $3"#,
    spread: 0,
};

const PILE_UP: Parameters = Parameters { connections: BURST.connections, room: None, visitor: Some(PILE), ..REWRITES };

impl Scenario {
    pub fn parameters(self) -> Parameters {
        match self {
            Self::Burst | Self::Remedy => BURST,
            Self::Steady => STEADY,
            Self::Expire => EXPIRE,
            Self::BigKey => BIG_KEY,
            Self::Table => TABLE,
            Self::Replication => REPLICATION,
            Self::Subscribers => SUBSCRIBERS,
            Self::PileUp => PILE_UP,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TriedRemedy {
    /// Keys live so briefly that memory stays below the limit
    Ttl,
    /// The limit is above what the keys, the tables and the clients need
    Maxmemory,
    /// More work for the expire cycle (active-expire-effort 5 and 10)
    Effort,
    /// Another thread frees large keys (lazyfree-lazy-eviction yes)
    Lazyfree,
    /// A small replication backlog (repl-backlog-size 1mb)
    Backlog,
    /// Subscribers are disconnected before their buffers swell (client-output-buffer-limit pubsub)
    OutputLimit,
    /// Times to live are spread over 20 s
    Spread,
}

/// The share of the limit that keys with shorter lives take. Clients, hash tables and keys that have expired
/// but have not been found yet take some 45 % of it.
const KEPT: f64 = 0.35;

/// How much higher the remedy `maxmemory` sets a limit that is relative to the used memory: more than the hash
/// tables of the keys or the replication backlog take in the scenarios.
const MORE_ROOM: u64 = 128 * MIB;

/// Over how long the remedy `spread` lets keys expire, in milliseconds.
const SPREAD: u64 = 20_000;

impl TriedRemedy {
    /// Returns the scenario in which it is tried unless another is asked for, and the names of its runs with the
    /// options that the server gets in them.
    pub fn row(self) -> (Scenario, &'static [(&'static str, &'static str)]) {
        match self {
            Self::Ttl => (Scenario::Burst, &[("ttl", "")]),
            Self::Maxmemory => (Scenario::Burst, &[("maxmemory", "")]),
            Self::Effort => (
                Scenario::Expire,
                &[("effort-5", "--active-expire-effort 5"), ("effort-10", "--active-expire-effort 10")],
            ),
            Self::Lazyfree => (Scenario::BigKey, &[("lazyfree", "--lazyfree-lazy-eviction yes")]),
            // The server's default.
            Self::Backlog => (Scenario::Replication, &[("backlog", "--repl-backlog-size 1mb")]),
            Self::OutputLimit => {
                (Scenario::Subscribers, &[("output-limit", "--client-output-buffer-limit pubsub 1mb 256kb 5")])
            }
            Self::Spread => (Scenario::PileUp, &[("spread", "")]),
        }
    }

    /// Applies what it changes besides options to the parameters of the run without it, which had keys of this size and
    /// made so many requests a second.
    pub fn apply(self, parameters: &mut Parameters, key_bytes: u64, rate: f64) {
        match self {
            Self::Ttl => {
                let keys = parameters.maxmemory as f64 * KEPT / key_bytes as f64;
                parameters.mix.longest_life = 2.0 * keys / (rate * parameters.mix.set_share);
                parameters.mix.lives_differ = true;
            }
            Self::Maxmemory => match &mut parameters.room {
                Some(room) => *room += MORE_ROOM,
                None => parameters.maxmemory *= 2,
            },
            Self::Spread => parameters.visitor = Some(Visitor { spread: SPREAD, ..PILE }),
            Self::Effort | Self::Lazyfree | Self::Backlog | Self::OutputLimit => {}
        }
    }
}
