//! Remedies, and what each changes in a run.

use clap::ValueEnum;

use crate::{
    lives::Lives,
    parameters::{Parameters, What},
    run::Finished,
    scenario::{Scenario, name_of},
};

/// A remedy for a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Remedy {
    /// Keys live so briefly that memory stays below the limit
    Ttl,
    /// The limit is above what the keys, the tables and the clients need
    Maxmemory,
    /// An eviction call may take less time (maxmemory-eviction-tenacity 0)
    Tenacity,
    /// A third fewer requests a second
    Rate,
    /// More work for the expire cycle (active-expire-effort 5 and 10)
    Effort,
    /// Another thread frees large keys (lazyfree-lazy-eviction yes)
    Lazyfree,
    /// Clients are disconnected before their buffers swell (maxmemory-clients)
    Clients,
    /// Fewer requests under way: one on each connection, and then a tenth of the connections, too
    Outstanding,
    /// A small replication backlog (repl-backlog-size 1mb)
    Backlog,
    /// Subscribers are disconnected before their buffers swell (client-output-buffer-limit pubsub)
    OutputLimit,
    /// Times to live are spread over 20 s
    Spread,
    /// The process that saves the data has other cores (bgsave_cpulist)
    Cpulist,
    /// What else runs on the server's core gives way (nice 19)
    Nice,
}

/// The share of the limit that keys with shorter lives take. Clients, hash tables and keys that have expired
/// but have not been found yet take some 45 % of it.
const KEPT: f64 = 0.35;

/// What the remedy `effort` sets, run after run.
const EFFORTS: [u32; 2] = [5, 10];

/// The share of the requests that the remedy `rate` leaves.
const FEWER: f64 = 2.0 / 3.0;

/// The remedy `outstanding` divides the connections by this in its second run.
const FEWER_CONNECTIONS: usize = 10;

/// How much higher the remedy `maxmemory` sets a limit that is relative to the used memory: more than the hash
/// tables of the keys, the replication backlog or expired keys take in the scenarios.
const MORE_ROOM: u64 = 128 * 1024 * 1024;

/// What clients may take beyond the buffers that they have before a burst, with the remedy `clients`: less than they
/// take in the burst.
const CLIENTS_ROOM: u64 = 10 * 1024 * 1024;

/// The replication backlog that the remedy `backlog` leaves: the server's default.
const SMALL_BACKLOG: u64 = 1024 * 1024;

/// Over how long the remedy `spread` lets keys expire, in seconds.
const SPREAD: f64 = 20.0;

impl Remedy {
    /// Returns the scenario in which it is tried unless another is asked for.
    pub fn scenario(self) -> Scenario {
        match self {
            Self::Effort => Scenario::Expire,
            Self::Lazyfree => Scenario::BigKey,
            Self::Backlog => Scenario::Replication,
            Self::OutputLimit => Scenario::Subscribers,
            Self::Spread => Scenario::PileUp,
            Self::Cpulist => Scenario::Fork,
            Self::Nice => Scenario::Neighbour,
            _ => Scenario::Burst,
        }
    }

    /// Returns the names of its runs.
    pub fn runs(self) -> Vec<String> {
        match self {
            Self::Effort => EFFORTS.map(|effort| format!("effort-{effort}")).into(),
            Self::Outstanding => ["one-under-way", "few-connections"]
                .map(str::to_owned)
                .into(),
            other => vec![name_of(&other)],
        }
    }

    /// Applies it to the parameters of the run without it, for its run of this number. Returns the rate of that run.
    pub fn apply(self, run: usize, parameters: &mut Parameters, without: &Finished) -> f64 {
        let (rate, key_bytes) = (without.outcome.rate, without.measured.key_bytes);
        match self {
            Self::Ttl => {
                let keys = parameters.maxmemory as f64 * KEPT / key_bytes as f64;
                let written = rate * parameters.mix.set_share;
                let mean = keys / written;
                parameters.mix.lives = Lives::Even { mean };
            }
            Self::Maxmemory => match &mut parameters.room {
                Some(room) => *room += MORE_ROOM,
                None => parameters.maxmemory *= 2,
            },
            Self::Tenacity => parameters.tenacity = 0,
            Self::Rate => return rate * FEWER,
            Self::Effort => parameters.effort = EFFORTS[run],
            Self::Lazyfree => parameters.lazy_eviction = true,
            Self::Clients => {
                let outcome = &without.outcome;
                let first = outcome.cycles.first();
                let before = first.map(|cycle| cycle.client_buffers_before);
                let before = before.unwrap_or(outcome.client_buffers_peak);
                parameters.clients_limit = before + CLIENTS_ROOM;
            }
            Self::Outstanding if run == 0 => parameters.most_under_way = 1,
            Self::Outstanding => {
                parameters.connections = (parameters.connections / FEWER_CONNECTIONS).max(1);
            }
            Self::Backlog => parameters.backlog = SMALL_BACKLOG,
            Self::OutputLimit => parameters.subscribers_limit = "pubsub 1mb 256kb 5",
            Self::Cpulist => parameters.forks_elsewhere = true,
            Self::Spread | Self::Nice => {
                if let Some(visitor) = &mut parameters.visitor {
                    match &mut visitor.what {
                        What::Pile { spread } => *spread = SPREAD,
                        What::Neighbour { nice } => *nice = 19,
                        _ => {}
                    }
                }
            }
        }
        rate
    }
}
