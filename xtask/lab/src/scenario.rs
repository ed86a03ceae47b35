//! The scenarios and the remedies, as rows: how the server is configured, what its clients ask for, how long that
//! lasts, and what a remedy changes.
//!
//! The documentation of the [crate] says what the numbers are for.

use std::path::PathBuf;

use clap::ValueEnum;

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
    /// The memory that is used at the beginning of the load.
    pub filled: u64,
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

/// What clients ask for.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Share of requests that are writes, 0 to 1; the others are `MGET`s.
    pub set_share: f64,
    /// Keys of one write: a `SET`, or a script if there are several.
    pub keys_per_write: usize,
    pub value_bytes: usize,
    /// Keys of one `MGET`.
    pub keys_per_read: usize,
    /// An `MGET` asks for random ones of this many newest keys.
    pub read_window: u64,
    /// Whether writes under load overwrite random ones of these newest keys, so that the data does not grow.
    pub rewrites: bool,
    /// The longest time to live of a key, in seconds.
    pub longest_life: f64,
    /// Whether lives are spread evenly up to that, instead of all being that long.
    pub lives_differ: bool,
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
    filled: 285 * MIB,
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
    filled: 112 * MIB,
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
    filled: 64 * MIB,
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
    filled: 380 * MIB,
    seconds: 40.0,
    ..STEADY
};

/// The replica says that all data may come over this connection while the server's child process writes it. Redis
/// refuses one to which it has not sent its last answer.
const REPLICATION: Parameters = Parameters {
    options: "--maxmemory-policy volatile-lru --maxmemory-samples 64 --repl-backlog-size 64mb",
    visitor: Some(Visitor { from: 10.0, after: 10.0, script: include_str!("scripts/replication.sh"), spread: 0 }),
    cycles: Some(1),
    ..REWRITES
};

const SUBSCRIBERS: Parameters = Parameters {
    busy: 0.4,
    visitor: Some(Visitor { from: 10.0, after: 10.0, script: include_str!("scripts/subscribers.sh"), spread: 0 }),
    ..REWRITES
};

const PILE: Visitor = Visitor { from: 0.0, after: 35.0, script: include_str!("scripts/pile.sh"), spread: 0 };

const PILE_UP: Parameters = Parameters { connections: BURST.connections, room: None, visitor: Some(PILE), ..REWRITES };

impl Scenario {
    pub fn parameters(self) -> Parameters {
        match self {
            Self::Burst | Self::Remedy => BURST,
            Self::Steady => STEADY,
            Self::Expire => EXPIRE,
            Self::BigKey => BIG_KEY,
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
    /// The limit is above what the keys and the clients need
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

/// Over how long the remedy `spread` lets keys expire, in milliseconds.
const SPREAD: u64 = 20_000;

impl TriedRemedy {
    /// Returns the scenario in which it is tried, and the names of its runs with the options that the server gets in
    /// them.
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
            Self::Maxmemory => parameters.maxmemory *= 2,
            Self::Spread => parameters.visitor = Some(Visitor { spread: SPREAD, ..PILE }),
            Self::Effort | Self::Lazyfree | Self::Backlog | Self::OutputLimit => {}
        }
    }
}
