//! A snapshot as a line of text, so that conclusions from real ones can be checked again and again.
//!
//! `RUST_LOG=info,readings=trace evictscope run` logs one at each reading.

use evictscope_model::Member;
use serde::{Deserialize, Serialize};

use crate::{ServerState, Snapshot, nanoseconds};

/// The parts of a snapshot that phases, bursts and stalls by evictions depend on. Times are monotonic nanoseconds,
/// sizes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedReading {
    at: u64,
    /// The same moment since 1970.
    unix: u64,
    observed: u64,
    cpu: Option<u64>,
    waiting: Option<u64>,
    is_resting: Option<bool>,
    rested: Option<u64>,
    /// Evicting calls that have ended, and their wall time.
    calls: u64,
    evicting: u64,
    since: u64,
    last: u64,
    burst_began: u64,
    burst_before_ended: u64,
    reported: Option<u64>,
    commands: Option<u64>,
    evicted_keys: Option<u64>,
    used_memory: Option<u64>,
    client_buffers: Option<u64>,
    /// What the look saw, if one was made.
    look: Option<RecordedLook>,
}

/// What a look at the sockets saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct RecordedLook {
    at: u64,
    connected: u64,
    waiting: u64,
    /// Since when the oldest request had been waiting.
    oldest: Option<u64>,
}

impl RecordedReading {
    /// Returns the parts needed from a snapshot that has been applied to `state`; `since_1970` dates it.
    pub fn of(snapshot: &Snapshot, state: &ServerState, since_1970: std::time::Duration) -> Self {
        let calls = snapshot.counted.calls.first().copied().unwrap_or_default();
        let evictions = &snapshot.counted.evictions;
        let members = snapshot.members.unwrap_or_default();
        Self {
            at: nanoseconds(snapshot.at),
            unix: nanoseconds(since_1970 + snapshot.at),
            observed: nanoseconds(snapshot.observed.evicting),
            cpu: snapshot.times.map(|times| times.cpu_ns),
            waiting: snapshot.times.map(|times| times.waiting_ns),
            is_resting: snapshot.is_resting,
            rested: snapshot.rests.last().copied().map(nanoseconds),
            calls: calls.inner.counts.iter().sum(),
            evicting: calls.inner.sum,
            since: calls.inner_since_ns,
            last: calls.last_inner_ns,
            burst_began: evictions.burst_began_ns,
            burst_before_ended: evictions.burst_before_ended_ns,
            reported: evictions.last.reported.get(),
            commands: members.get(Member::StatNumcommands),
            evicted_keys: members.get(Member::StatEvictedkeys),
            used_memory: members.get(Member::UsedMemory),
            client_buffers: members.get(Member::StatClientsTypeMemory),
            look: snapshot.look.as_ref().map(|look| RecordedLook {
                at: nanoseconds(look.at),
                connected: state.waits.connected,
                waiting: state.waits.waiting(),
                oldest: state.waits.oldest().map(nanoseconds),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Compares what the agent concludes from real readings with what another observer saw of the same run.
    //!
    //! `testdata/NAME.jsonl.gz` has the readings. `testdata/NAME.json` has what the server's own `INFO` showed
    //! meanwhile, and the command that made both.

    use std::collections::BTreeMap;
    use std::io::Read as _;
    use std::path::Path;
    use std::time::Duration;

    use anyhow::{Context as _, ensure};
    use evictscope_abi::Noted;
    use evictscope_model::Member;
    use flate2::read::GzDecoder;
    use serde::Deserialize;

    use super::{RecordedLook, RecordedReading};
    use crate::{
        Burst, Cycle, Moment, Observed, Phase, ServerState, Snapshot, SocketLook, StallCause, ThreadTimes, Unread,
    };

    /// How far apart the agent's two clocks may have been read, in seconds.
    const CLOCK: f64 = 0.003;

    /// What another observer saw. Times are seconds since 1970.
    #[derive(Deserialize)]
    struct Info {
        /// Each burst: the bounds of its beginning and of its end, and the number of keys that it evicted.
        bursts: Vec<SeenBurst>,
        /// For how long each cause stalled clients, at least and at most, in seconds; 0 for a cause that is missing.
        stalled: BTreeMap<String, (f64, f64)>,
        /// The same for all causes together.
        stalled_in_all: (f64, f64),
    }

    #[derive(Deserialize)]
    struct SeenBurst {
        /// Its expected kind; `None` if the run does not tell.
        kind: Option<String>,
        began: (f64, f64),
        ended: (f64, f64),
        evicted_keys: u64,
    }

    impl RecordedReading {
        /// Returns a snapshot with the same values, and nothing else.
        fn snapshot(&self) -> Snapshot {
            let time = Duration::from_nanos;
            let members = [
                (Member::StatNumcommands, self.commands),
                (Member::StatEvictedkeys, self.evicted_keys),
                (Member::UsedMemory, self.used_memory),
                (Member::StatClientsTypeMemory, self.client_buffers),
            ]
            .map(|(member, value)| Some((member, value?)));
            let mut snapshot = Snapshot {
                at: time(self.at),
                observed: Observed { evicting: time(self.observed), noop: Duration::ZERO },
                times: self.cpu.zip(self.waiting).map(|(cpu_ns, waiting_ns)| ThreadTimes { cpu_ns, waiting_ns }),
                members: Some(members.into_iter().flatten().collect()),
                look: self.look.map(|look| look.as_seen(time)),
                is_resting: self.is_resting,
                rests: self.rested.map(time).into_iter().collect(),
                ..Snapshot::default()
            };
            if let Some(calls) = snapshot.counted.calls.first_mut() {
                calls.inner.counts[0] = self.calls;
                calls.inner.sum = self.evicting;
                calls.inner_since_ns = self.since;
                calls.last_inner_ns = self.last;
            }
            let evictions = &mut snapshot.counted.evictions;
            evictions.burst_began_ns = self.burst_began;
            evictions.burst_before_ended_ns = self.burst_before_ended;
            evictions.last.reported = match self.reported {
                Some(value) => Noted { value, is_known: 1 },
                None => Noted::default(),
            };
            snapshot
        }
    }

    impl RecordedLook {
        /// Returns a look that saw the same number of connections with unread data, and the same oldest request.
        fn as_seen(self, time: fn(u64) -> Duration) -> SocketLook {
            // The others are only known to be younger: each look has new ones.
            let unread = |socket| Unread {
                socket,
                read_to: self.at as u32,
                answered_to: 0,
                bytes: 1,
                came: Some(time(self.at)),
            };
            let mut unread: Vec<_> = (1..=self.waiting).map(unread).collect();
            if let (Some(first), Some(oldest)) = (unread.first_mut(), self.oldest) {
                // The same request has the same socket in each look.
                *first = Unread {
                    socket: u64::MAX - oldest,
                    read_to: 0,
                    answered_to: 0,
                    came: Some(time(oldest)),
                    ..*first
                };
            }
            SocketLook {
                at: time(self.at),
                connected: u32::try_from(self.connected).unwrap_or(u32::MAX),
                unread,
                ..SocketLook::default()
            }
        }
    }

    fn is_between(what: &str, value: f64, (least, most): (f64, f64)) -> anyhow::Result<()> {
        ensure!((least - CLOCK..=most + CLOCK).contains(&value), "{what}: {value} is not in {least} to {most}");
        Ok(())
    }

    fn judge(name: &str) -> anyhow::Result<()> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata");
        let file = std::fs::File::open(data.join(format!("{name}.jsonl.gz")))?;
        let mut text = String::new();
        GzDecoder::new(file).read_to_string(&mut text)?;
        let seen: Info = serde_json::from_str(&std::fs::read_to_string(data.join(format!("{name}.json")))?)?;

        let mut readings = text.lines().map(serde_json::from_str::<RecordedReading>);
        let first = readings.next().context("no readings")??;
        let since_1970 = Duration::from_nanos(first.unix - first.at);
        let first = first.snapshot();
        let (mut state, mut cycle) =
            (ServerState::default(), Cycle::new(first.at.saturating_sub(Duration::from_millis(1))));
        state.apply(&first);
        let (mut bursts, mut last, mut gap) = (Vec::new(), first.at, Duration::ZERO);
        for reading in readings {
            let snapshot = reading?.snapshot();
            if cycle.phases.phase == Phase::Saturated {
                gap = gap.max(snapshot.at.saturating_sub(last));
            }
            last = snapshot.at;
            state.apply(&snapshot);
            bursts.extend(cycle.observe(&Moment::new(&snapshot, &state)));
        }
        let as_seen = |burst: &Burst| format!("{:?}", (burst.kind().0, burst.started, burst.duration));
        let all: Vec<String> = bursts.iter().map(|burst| as_seen(burst)).collect();
        ensure!(bursts.len() == seen.bursts.len(), "{name}: {all:?}");
        for (burst, seen_burst) in bursts.iter().zip(&seen.bursts) {
            let began = burst.dated(since_1970).started.as_secs_f64();
            is_between("it began", began, seen_burst.began)?;
            let ended = began + burst.duration.as_secs_f64();
            // If calls were not observed, the end is only as exact as readings are close.
            let is_observed = burst.observed >= burst.duration.mul_f64(0.95);
            let late = if is_observed { Duration::ZERO } else { gap };
            let (from, to) = seen_burst.ended;
            is_between("it ended", ended, (from, to + late.as_secs_f64()))?;
            let keys = burst.evicted_keys;
            ensure!(keys == Some(seen_burst.evicted_keys), "{keys:?} keys evicted");
            let kind = burst.kind().0.to_string();
            ensure!(seen_burst.kind.as_ref().is_none_or(|wanted| *wanted == kind), "{name}: {all:?}");
        }
        for cause in StallCause::ALL {
            let stalled = state.stalled(cause).unwrap_or_default().as_secs_f64();
            println!("{name}: {all:?}, {cause} stalled clients for {stalled} s, readings {gap:?} apart at most");
            let seen = seen.stalled.get(&cause.to_string());
            is_between("seconds stalled", stalled, seen.copied().unwrap_or_default())?;
        }
        let in_all = state.stalled_in_all().unwrap_or_default();
        is_between("seconds stalled in all", in_all.as_secs_f64(), seen.stalled_in_all)
    }

    macro_rules! judged {
        ($($name:ident),*) => { $(
            #[test]
            fn $name() -> anyhow::Result<()> {
                judge(stringify!($name))
            }
        )* };
    }

    judged!(
        burst_on_a_calm_machine,
        steady_evictions,
        steady_evictions_beside_two_endless_loops,
        endless_eviction,
        endless_eviction_beside_two_endless_loops,
        three_scripts
    );
}
