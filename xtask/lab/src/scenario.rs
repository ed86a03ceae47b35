//! The scenarios: how the server is configured, what its clients ask for, and for how long.

use std::time::Duration;

use clap::ValueEnum;
use evictscope_testkit::agent::Program;
use serde::Serialize;

use crate::{lives::Lives, workload::Mix};

/// The kind of a burst that is no incident.
pub const PLAIN: &str = "plain";

/// A state to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// The three-phase cycle, several times over
    Burst,
    /// A slow main thread without evictions: queueing alone swells the client buffers
    Stall,
    /// Evictions all the time, calmly
    Steady,
    /// Below the limit: no evictions
    Healthy,
    /// Keys expire faster than the active expire cycle finds them
    Expire,
    /// `burst` (or `expire`) without and with a remedy
    Remedy,
}

/// A remedy of the article against the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Remedy {
    /// Keys live so briefly that memory stays below the limit
    Ttl,
    /// The limit is above what the keys and the clients need
    Maxmemory,
    /// An eviction call may take less time (maxmemory-eviction-tenacity 0)
    Tenacity,
    /// A third fewer requests a second
    Rate,
    /// More work for the expire cycle (active-expire-effort 5 and 10) in `expire`
    Effort,
}

/// All that may differ between two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Clients.
    pub connections: usize,
    /// Requests under way on one connection, at most.
    pub most_under_way: usize,
    /// The server's limit, in bytes.
    pub maxmemory: u64,
    /// The server's `maxmemory-policy`.
    pub policy: &'static str,
    /// The server's `maxmemory-eviction-tenacity`: how long an eviction call may take.
    pub tenacity: u32,
    /// The server's `maxmemory-samples`: keys that it looks at to choose one to evict.
    pub samples: u32,
    /// The server's `active-expire-effort`: how much the expire cycle may do.
    pub effort: u32,
    /// The clients' requests.
    pub mix: Mix,
    /// Requests due, as a share of the capacity below the limit.
    pub share_of_capacity: f64,
    /// Used memory at the beginning of the load, in bytes.
    pub filled: u64,
    /// When and how the server is made slow.
    pub stall: Option<Stall>,
}

/// When and how the server is made slow.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stall {
    /// When it begins, in seconds of load.
    pub after: f64,
    /// How long it lasts, in seconds.
    pub seconds: f64,
    /// Share of the time that the server is stopped in it.
    pub stopped_share: f64,
}

/// A run to be made.
pub struct Plan {
    /// The name of the record.
    pub name: String,
    /// The server's configuration and its load.
    pub parameters: Parameters,
    /// Requests a second. By default this is a share of the measured capacity.
    pub rate: Option<f64>,
    /// How long the load lasts at most.
    pub length: Duration,
    /// The number of complete cycles after which the run ends.
    pub cycles: Option<usize>,
    /// Whether keys expire with the load only, and what expired keys hold is measured at its end.
    pub measures_expiry: bool,
    /// The agent that watches it.
    pub agent: Option<Program>,
}

/// Returns the name of a scenario or a remedy on the command line.
pub fn name_of(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The share of the limit that keys with shorter lives take. Clients, hash tables and keys that have expired
/// but have not been found yet take some 45 % of it.
const KEPT: f64 = 0.35;

/// The share of the requests that the remedy `rate` leaves.
const FEWER: f64 = 2.0 / 3.0;

const MIB: u64 = 1024 * 1024;

/// The documentation of the [crate] says what these numbers are for.
const BURST: Parameters = Parameters {
    connections: 3000,
    most_under_way: 2,
    maxmemory: 325 * MIB,
    policy: "volatile-lru",
    samples: 64,
    tenacity: 10,
    effort: 1,
    mix: Mix {
        set_share: 0.8,
        keys_per_write: 1,
        value_bytes: 200,
        keys_per_read: 200,
        read_window: 300_000,
        lives: Lives::Even { mean: 900.0 },
    },
    share_of_capacity: 0.45,
    filled: 285 * MIB,
    stall: None,
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
        lives: Lives::One { seconds: 5.0 },
    },
    share_of_capacity: 0.7,
    filled: 64 * MIB,
    ..BURST
};

impl Plan {
    /// Returns the plan of a scenario, watched by `agent`.
    pub fn new(scenario: Scenario, agent: Option<Program>) -> Self {
        Self {
            name: name_of(&scenario),
            parameters: scenario.parameters(),
            rate: None,
            length: scenario.length(),
            cycles: None,
            measures_expiry: scenario == Scenario::Expire,
            agent,
        }
    }
}

impl Scenario {
    /// Returns what it asks of the server.
    fn parameters(self) -> Parameters {
        match self {
            Self::Burst | Self::Remedy => BURST,
            Self::Healthy => Parameters {
                maxmemory: 2048 * MIB,
                ..BURST
            },
            Self::Stall => Parameters {
                maxmemory: 4096 * MIB,
                share_of_capacity: 0.6,
                most_under_way: 5,
                mix: Mix {
                    set_share: 0.5,
                    ..BURST.mix
                },
                stall: Some(Stall {
                    after: 15.0,
                    seconds: 8.0,
                    stopped_share: 0.5,
                }),
                ..BURST
            },
            Self::Steady => Parameters {
                connections: 200,
                maxmemory: 128 * MIB,
                policy: "allkeys-lru",
                samples: 5,
                share_of_capacity: 0.2,
                // The recorder's connections take 14 MiB more.
                filled: 112 * MIB,
                mix: Mix {
                    set_share: 0.5,
                    keys_per_read: 5,
                    read_window: 100_000,
                    ..BURST.mix
                },
                ..BURST
            },
            Self::Expire => EXPIRE,
        }
    }

    /// Returns the kind of all its bursts, where that is certain.
    pub fn kind_of_bursts(self) -> Option<&'static str> {
        match self {
            Self::Burst => Some("self_amplifying"),
            Self::Stall | Self::Steady | Self::Healthy | Self::Expire => Some(PLAIN),
            Self::Remedy => None,
        }
    }

    /// Returns how long its load lasts at most by default.
    fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Burst | Self::Remedy => 240,
            Self::Stall => 40,
            Self::Expire => 25,
            Self::Steady | Self::Healthy => 60,
        })
    }
}

impl Remedy {
    /// Returns the scenario in which it is tried.
    pub fn scenario(self) -> Scenario {
        match self {
            Self::Effort => Scenario::Expire,
            Self::Ttl | Self::Maxmemory | Self::Tenacity | Self::Rate => Scenario::Burst,
        }
    }

    /// Returns what is changed, run after run.
    pub fn changes(self) -> &'static [Change] {
        match self {
            Self::Ttl => &[Change::Ttl],
            Self::Maxmemory => &[Change::Maxmemory],
            Self::Tenacity => &[Change::Tenacity],
            Self::Rate => &[Change::Rate],
            Self::Effort => &[Change::Effort(5), Change::Effort(10)],
        }
    }
}

/// What is changed in a run with a remedy.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// As [`Remedy::Ttl`].
    Ttl,
    /// As [`Remedy::Maxmemory`].
    Maxmemory,
    /// As [`Remedy::Tenacity`].
    Tenacity,
    /// As [`Remedy::Rate`].
    Rate,
    /// The server's `active-expire-effort`.
    Effort(u32),
}

impl Change {
    /// Returns its name.
    pub fn name(self) -> String {
        match self {
            Self::Ttl => name_of(&Remedy::Ttl),
            Self::Maxmemory => name_of(&Remedy::Maxmemory),
            Self::Tenacity => name_of(&Remedy::Tenacity),
            Self::Rate => name_of(&Remedy::Rate),
            Self::Effort(effort) => format!("{}-{effort}", name_of(&Remedy::Effort)),
        }
    }

    /// Applies it to the parameters of a run at `rate` requests a second, whose keys took `key_bytes` each.
    /// Returns the rate of the next run.
    pub fn apply(self, parameters: &mut Parameters, rate: f64, key_bytes: u64) -> f64 {
        match self {
            Self::Ttl => {
                let keys = parameters.maxmemory as f64 * KEPT / key_bytes as f64;
                let written = rate * parameters.mix.set_share;
                let mean = keys / written;
                parameters.mix.lives = Lives::Even { mean };
            }
            Self::Maxmemory => parameters.maxmemory *= 2,
            Self::Tenacity => parameters.tenacity = 0,
            Self::Rate => return rate * FEWER,
            Self::Effort(effort) => parameters.effort = effort,
        }
        rate
    }
}
