//! Makes the eviction-burst cycle, its causes, and expiry that falls behind, happen on a throw-away
//! redis-server.
//!
//! The server runs on the first core. A load generator and what asks the server for its numbers run on the others.
//! Requests fall due at a rate, not when the last reply came. Everything ends by itself, even on Ctrl-C. What the
//! server's own numbers and the generator's show is printed, with what the agent says beside it. The agent's records
//! are kept in `target/lab`.
//!
//! # How the cycle comes about
//!
//! In each round of its event loop the server reads the requests that came in during the last round, and holds their
//! replies until the end of the round. A round of `n` requests holds `n` replies. At the limit, more requests than in
//! any round before mean evictions. Evictions make the round longer, and a longer round means more requests in the next
//! one. This amplification takes off if the evictions for one more reply, times the arrival rate, exceed about 2. It
//! ends when all connections have all their requests under way. Then rounds shrink, memory falls by the replies of the
//! largest round, and the `SET`s of the following time fill that again.
//!
//! The parameters of `burst` follow from this. The figures come from two cores of a virtual machine with Debian's
//! redis 7.0.15.
//! - 3,000 connections with at most 2 requests under way bound a burst to 6,000 replies, some 35 MiB, which are
//!   filled again in 20 s.
//! - `MGET`s of 200 keys of 200 bytes have a reply of 41 kB for a request of 4 kB. Four `SET`s for each `MGET` let
//!   memory grow by 1.8 MiB a second.
//! - Policy `volatile-lru` (all keys have a time to live) with 64 samples, the most that Redis takes, makes
//!   50,000 evictions a second and leaves time for nothing else. With `allkeys-lru` and 5 samples, evictions were too
//!   fast on a keyspace that nearly fits the caches: bursts took 0.3 to 1 s and throughput hardly fell. A server of
//!   tens of GB, where each sampled key is a cache miss, needs no such help.
//! - 45 % of the measured capacity is calm below the limit, and the backlog of a burst is worked off in
//!   2 s. At 37 to 40 % some bursts fizzled out with a tenth of the backlog. At 50 % and more, the full rounds at the
//!   end of a burst went on evicting for seconds at full throughput; at 80 % for 10 s.
//! - A mean time to live of 900 s, evenly between 0 and twice that: keys expire all the time, but too few to keep
//!   memory below the limit. The remedy `ttl` shortens it until they do.
//!
//! # How expiry falls behind
//!
//! An expire cycle looks at 20 keys at a time, and goes on while more than a tenth of them had expired, up to its time
//! limit. The slow cycle, 10 times a second, may take 25 ms; a fast one, after a round of the event loop, 1 ms. On the
//! machine above that suffices for 1,000,000 keys a second while the server has little else to do. What makes it fall
//! behind is a main thread without time to spare: rounds become long, each has one cycle of each kind, and a round that
//! takes twice as long leaves expiry half as much time. The parameters of `expire` follow from this.
//! - A write sets 100 keys with a script, because a server that gets one key at a time has other things to do than to
//!   expire keys. So 380,000 keys a second are written, live for 5 s, and expire.
//! - At 70 % of the measured capacity, this and expiry need more than all of the main thread. At 55 and 60 % runs
//!   recovered from the first long rounds.
//! - The load begins without keys, so that what expires is its own. It ends after 25 s: some seconds later the hash
//!   table of the keys doubles once more, and the server answers half as much until all keys are moved.
//! - An `MGET` asks for keys that were written in the last 0.3 s. No client meets an expired key, so all that expires
//!   under load was deleted by a cycle.
//!
//! # Other causes
//!
//! In these scenarios, something other than client buffers takes the memory. The limit is set relative to the memory
//! that is used once all else is ready, because that differs from run to run.
//! - `big-key`: with 64 samples among 300,000 keys, `allkeys-lru` finds a hash of 4,000,000 fields, older than all
//!   other keys, within some thousand evictions. The server frees its 230 MiB in one evicting call of 1.5 s.
//! - `table`: from one key for each bucket on, Redis 6.2 and later double a hash table of the keys only if the new one
//!   fits below `maxmemory`; at 1.618 keys for each bucket, regardless (6.2.14, 7.0.15 and 8.2.3 did). A server gets
//!   there at constant memory if keys become smaller, and here with a limit that follows the used memory. Two tables of
//!   2^20 buckets, for the keys and for the times to live, then take 32 MiB at once.
//! - `replication`: a replica asks for all data and reads nothing, like one behind a slow network. Redis 7 and 8 count
//!   what piles up for it against the limit up to `repl-backlog-size`, which is 64 MiB here. Redis 6.2 counts no
//!   replica's buffer, but takes all of `repl-backlog-size` when the first replica comes (6.2.14 did). The clients
//!   overwrite keys, so that the data does not grow.
//! - `subscribers`: 20 of them are owed 6.5 MB a second and read nothing. What the kernel's buffers do not take piles
//!   up in the server's.
//! - `pile-up`: beside the load, a client writes 2,000,000 keys that expire at one instant. The limit is out of reach.

mod counts;
mod generator;
mod prepare;
mod run;
mod scenario;
mod schedule;
mod seen;
mod summary;
mod witness;
mod workload;

pub use run::{Arguments, one_cycle, run};
pub use summary::Finished;
pub use witness::Testimony;
