//! `cargo xtask lab SCENARIO`: the eviction-burst cycle, and what resembles it, made to happen.
//!
//! A throw-away redis-server on the first core, and on the second one a load that is due at a rate,
//! not when the last reply came ([`generator`]), with a recorder. All of it ends by itself, also on
//! Ctrl-C. The record is the server's own word and the generator's: it knows nothing of the agent,
//! which is judged by it.
//!
//! # The record
//!
//! `target/lab/<scenario>-<seconds since 1970>.jsonl` has one JSON object a line, told apart by its
//! `type`. All times are seconds since 1970 (`at` is when the line was true), all sizes bytes.
//!
//! | type | when | what |
//! |---|---|---|
//! | `run` | first | what is run: server, rate, measured capacity, parameters (`record::Run`) |
//! | `event` | as they come | `load_begins`, `load_ends`, `stall_begins`, `stall_ends` ([`record::Event`]) |
//! | `info` | asked 200 times a second | the server's counters and memory ([`sample::Sample`]). `at` is the server's own time as it wrote the answer, between `sent` and `received`, which a saturated server lets lie seconds apart. The lines of several connections are not in order: sort by `at`, then by `commands` |
//! | `load` | 10 times a second | the generator's counts since it connected, and its backlog ([`record::Load`]) |
//! | `second` | every second | rates, latencies, backlog of the second ([`record::Second`]). Latency counts from when a request was due, so what waited in the generator has waited |
//! | `result` | last | each cycle ([`cycles::Cycle`]), and of `stall` the swelling ([`stall::Swelling`]) |
//!
//! A file without a `result` is of a run that failed.
//!
//! # What makes the cycle
//!
//! In each round of its event loop the server reads the requests that came in during the last one,
//! and holds their replies until the end of the round. A round of `n` requests holds `n` replies: at
//! the limit, more requests than in any round before means evictions, evictions make the round
//! longer, and a longer round means more requests in the next one. The amplification takes off where
//! what one more reply costs in evictions, times the arrival rate, is more than about 2. It ends when
//! all connections have all their requests under way; then the rounds shrink, memory falls by what
//! the replies of the largest round took, and it takes the `SET`s of the next time to fill that again.
//!
//! So the parameters of `burst` are, with what was seen on two cores of a virtual machine
//! (Debian's redis 7.0.15):
//! - 3,000 connections with at most 2 requests under way: they bound a burst to 6,000 replies, some
//!   35 MiB, which are filled again in 20 s. With 5 instead of 2, one burst evicted 108 MiB in 8 s
//!   and took minutes to come back.
//! - `MGET`s of 200 keys of 200 bytes: a reply of 41 kB for a request of 4 kB. Four `SET`s on each,
//!   for memory to grow by 1.8 MiB a second.
//! - Policy `volatile-lru` (all keys have a time to live) of 64 samples, the most that Redis takes:
//!   50,000 evictions a second and nothing else. With `allkeys-lru` of 5 samples, evictions were too
//!   fast on a keyspace that nearly fits the caches: bursts took 0.3 to 1 s and throughput hardly
//!   fell. On a server of tens of GB, where each sampled key is a cache miss, it takes no such help.
//! - 45 % of the measured capacity. Below the limit that is calm (CPU at 60 %), and what has piled up
//!   in a burst is worked off in 2 s. At 37 to 40 % some bursts fizzled out with a tenth of the
//!   backlog; at 50 % and more the full rounds at the end of a burst went on evicting for seconds, at
//!   full throughput; at 80 % for 10 s.
//! - A mean time to live of 900 s, evenly between 0 and twice that: keys expire all the time, but too
//!   few to keep memory below the limit. The remedy `ttl` shortens it until they do.
//! - Connecting takes 5 s, because Redis gives the reply buffer of each client a new size every 5 s
//!   from its connecting: those of clients that came together swelled and shrank together by 10 MiB.
//! - `maxmemory-clients` is set, far above what is used: then Redis accounts for a client after each
//!   command. Without it, the cron visits a tenth of the clients in each round, and
//!   `mem_clients_normal` was still rising when the burst was long over.

mod bursts;
mod client;
mod clock;
mod command;
mod connection;
mod counts;
mod cycles;
mod finished;
mod generator;
mod judge;
mod meter;
mod observer;
mod open_files;
mod outcome;
mod own_core;
mod plan;
mod prepare;
mod record;
mod recorder;
mod resp;
mod run;
mod sample;
mod scenario;
mod schedule;
mod stall;
mod summary;
mod swelling;
mod threads;
mod witness;
mod workload;

pub use self::{
    bursts::{cycles_before, one_cycle},
    client::Client,
    command::{Arguments, run},
    finished::Finished,
    outcome::Outcome,
    run::Onlooker,
    witness::Testimony,
};
