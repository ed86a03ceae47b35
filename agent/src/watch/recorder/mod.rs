//! Makes the records of one server, in its thread: from what was read, about the times that [`Occasions`] chooses.
//!
//! Deliberately absent: writing them ([`Keeper`]), which must not hold up the readings.

mod losses;
mod occasions;
mod profiles;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_host::ServerProcess;
use evictscope_model::Member;
use evictscope_plan::ProbePlan;
use evictscope_records::{
    Configuration, Ending, Keeper, Occasion, Record, RecordId, RecordedPeers, RecordedServer, Tell,
};
use evictscope_telemetry::{
    Burst, BurstKind, CommandLog, Latencies, MemberValues, Moment, ServerState, SlowCalls, Snapshot, Timeline,
    WorstPeers, microseconds,
};
use evictscope_web::{KeyLosses, Request, Requests, version};
use parking_lot::Mutex;

use self::losses::{KeyCounts, Losses};
pub use self::occasions::Allowance;
use self::occasions::{Occasions, Sight, WantedRecord};
use self::profiles::Profiles;
pub use self::profiles::Subject;
use crate::clock::{monotonic, since_1970};

/// How many names of records are remembered: enough for all bursts that are listed.
const NAMED: usize = 100;
/// For how long the costs of the probes are remembered: as long as moments are kept.
const COSTS: Duration = Duration::from_secs(600);
/// A profile begins in an evicting call that has gone on for this long, so that it has samples of that very call.
const SLOW_CALL: Duration = Duration::from_millis(10);
/// How long to wait at the end for a profile that is being unwound.
const PROFILE_PATIENCE: Duration = Duration::from_millis(500);

/// What a recorder needs from the rest of the agent.
pub struct Surroundings {
    /// Where records are kept, or why they are not.
    pub keeper: Result<Keeper, String>,
    /// What is asked of the threads of servers.
    pub requests: Requests,
    /// The most that the probes may cost, as a share of the main thread.
    pub budget: f64,
}

/// What a server's thread does for records and profiles.
pub struct Recorder {
    server: RecordedServer,
    around: Surroundings,
    pub profiles: Profiles,
    /// What is kept for records; `None` if evicting calls are not seen, or what the plan says of them was withdrawn.
    kept: Option<Kept>,
    ending: Option<Ending>,
}

/// What records are made of besides the timeline, and when.
#[derive(Default)]
struct Kept {
    occasions: Occasions,
    losses: Losses,
    latencies: Latencies,
    slow_calls: SlowCalls,
    /// The highest cost of the probes in each second, monotonic.
    costs: VecDeque<(u64, f64)>,
    members: MemberValues,
    /// What its commands took; `None` if their counters were not found.
    commands: Option<Arc<Mutex<CommandLog>>>,
    peers: WorstPeers,
    /// When the recorded bursts began, monotonic, and the names of their records.
    named: Arc<VecDeque<(Duration, RecordId)>>,
    tell: Vec<Tell>,
}

impl Kept {
    fn cost(&mut self, at: Duration, ratio: f64) {
        let now = at.as_secs();
        match self.costs.back_mut() {
            Some((second, highest)) if *second == now => *highest = highest.max(ratio),
            _ => self.costs.push_back((now, ratio)),
        }
        let is_over = |cost: &mut (u64, f64)| cost.0 + COSTS.as_secs() < now;
        while self.costs.pop_front_if(is_over).is_some() {}
    }

    fn highest_cost(&self, from: Duration, to: Duration) -> Option<f64> {
        let span = from.as_secs()..=to.as_secs();
        self.costs.iter().filter(|cost| span.contains(&cost.0)).map(|cost| cost.1).reduce(f64::max)
    }

    fn id_of(&self, burst: &Burst) -> Option<&RecordId> {
        Some(&self.named.iter().find(|(started, _)| *started == burst.started)?.1)
    }

    fn name(&mut self, burst: &Burst, id: &RecordId) {
        let named = Arc::make_mut(&mut self.named);
        if named.len() == NAMED {
            named.pop_front();
        }
        named.push_back((burst.started, id.clone()));
    }
}

impl Recorder {
    /// Begins with a server that is called `label` and has this `plan`. Records are made if its evicting calls are
    /// seen: then `commands` says what its commands took, if their counters were found.
    pub fn new(
        label: &str,
        subject: Subject,
        plan: &ProbePlan,
        around: Surroundings,
        commands: Option<Option<Arc<Mutex<CommandLog>>>>,
    ) -> Self {
        Self {
            server: recorded(label, &subject.process, plan),
            around,
            profiles: Profiles::new(subject),
            kept: commands.map(|commands| Kept { commands, ..Kept::default() }),
            ending: None,
        }
    }

    /// Takes in a reading, and what follows from it: the `finished` bursts are those that are now known to be over, and
    /// `overhead` is what the probes cost, as a share of the main thread. Returns the name of the record of each of
    /// these bursts, if there will be one.
    pub fn take_in(
        &mut self,
        snapshot: &Snapshot,
        moment: &Moment,
        state: &ServerState,
        has_open_burst: bool,
        finished: &[Arc<Burst>],
        overhead: Option<f64>,
    ) -> Vec<Option<RecordId>> {
        let Some(kept) = &mut self.kept else { return vec![None; finished.len()] };
        let now = snapshot.at;
        kept.latencies.take_in(now, &state.eviction().inner);
        let call = kept.slow_calls.take_in(now, &snapshot.counted.evictions);
        if let Some(ratio) = overhead {
            kept.cost(now, ratio);
        }
        if let Some(members) = state.members {
            kept.members = members;
        }
        kept.peers.clone_from(&state.peers.worst);
        let loss = key_counts(moment, state).and_then(|keys| kept.losses.saw(now, keys));
        if self.around.keeper.is_err() {
            return vec![None; finished.len()];
        }
        let names = finished.iter().map(|burst| {
            self.profiles.divide();
            let will_be = kept.occasions.ended(now, burst);
            if !will_be && burst.kind().0 != BurstKind::Plain {
                tracing::debug!(server = &self.server.label, "no record of this burst: it has had many of late");
            }
            will_be.then(|| {
                let began = since_1970() + burst.started;
                let id = RecordId::new(microseconds(began), &self.server.label, self.server.pid);
                kept.name(burst, &id);
                id
            })
        });
        let names = names.collect();
        let sight = Sight {
            stalled: moment.stalled,
            has_open_burst,
            call,
            refused: moment.refused,
            buffers: moment.buffers_share(),
            loss,
        };
        let evicting_since = moment.evictions.since;
        let is_slow = !evicting_since.is_zero() && now.saturating_sub(evicting_since) >= SLOW_CALL;
        self.profiles.follow(profiles::Conditions {
            at: now,
            is_stalled: kept.occasions.saw(now, &sight) || is_slow,
            has_open_burst,
            is_asked: kept.occasions.is_asked(now),
            is_due: kept.occasions.is_due(now),
        });
        names
    }

    /// Answers requests, and hands over the records that are due.
    pub fn answer(&mut self, plan: &ProbePlan, timeline: Option<&Timeline>) {
        for request in self.around.requests.take(&self.server.label) {
            match request {
                Request::Record(tell) => self.ask(tell),
                Request::Profile { length, hz, answer } => self.profiles.ask(monotonic(), length, hz, answer),
            }
        }
        self.profiles.settle(monotonic());
        let due = self.kept.as_mut().map(|kept| kept.occasions.due(monotonic()));
        self.hand_over(due.unwrap_or_default(), plan, timeline);
    }

    fn ask(&mut self, tell: Tell) {
        let refused = match (&mut self.kept, &self.around.keeper) {
            (_, Err(why)) => why.clone(),
            (None, _) => format!(
                "its evicting calls are not seen, so there is nothing to record; `evictscope inspect {}` says why",
                self.server.pid
            ),
            (Some(kept), Ok(_)) => {
                kept.occasions.ask(monotonic());
                kept.tell.push(tell);
                return;
            }
        };
        // The caller may be gone.
        let _ = tell.send(Err(refused));
    }

    fn hand_over(&mut self, due: Vec<WantedRecord>, plan: &ProbePlan, timeline: Option<&Timeline>) {
        for wanted in due {
            let (Some(timeline), Some(kept)) = (timeline, &mut self.kept) else { continue };
            let tell = if wanted.occasion == Occasion::Asked { std::mem::take(&mut kept.tell) } else { Vec::new() };
            if let Some(record) = self.record(&wanted, plan, timeline)
                && let Ok(keeper) = &self.around.keeper
            {
                keeper.keep(record, tell);
            }
        }
    }

    fn record(&self, wanted: &WantedRecord, plan: &ProbePlan, timeline: &Timeline) -> Option<Record> {
        let kept = self.kept.as_ref()?;
        let (from, to) = wanted.span();
        let from = from.min(timeline.calm_before(wanted.began));
        // One for all of the record.
        let since_1970 = since_1970();
        let dated = |at: Duration| microseconds(since_1970.saturating_add(at));
        let burst = wanted.burst.as_deref();
        // What was said of the burst has named it.
        let named = burst.and_then(|burst| kept.id_of(burst)).cloned();
        let id = || RecordId::new(dated(wanted.began), &self.server.label, self.server.pid);
        Some(Record {
            format: Record::FORMAT,
            id: named.unwrap_or_else(id),
            agent: version::NUMBER.to_owned(),
            occasion: wanted.occasion,
            server: self.server.clone(),
            began_us: dated(wanted.began),
            ended_us: dated(wanted.ended),
            burst: burst.map(|burst| burst.dated(since_1970)),
            ending: self.ending.filter(|_| wanted.occasion == Occasion::Ended),
            configuration: configuration(&kept.members),
            moments: timeline.moments(from, to, since_1970),
            slowest: kept.slow_calls.between(from, to, since_1970),
            latencies: kept.latencies.between(from, to, since_1970),
            commands: (kept.commands.as_ref())
                .map_or_else(Vec::new, |commands| commands.lock().between(from, to, since_1970)),
            peers: (kept.peers.between(from, to).into_iter())
                .map(|(at, seen)| RecordedPeers { unix_us: dated(at), seen: seen.clone() })
                .collect(),
            profile: self.profiles.of(wanted, since_1970),
            not_found: plan.not_found.iter().map(|missing| format!("{}: {}", missing.item, missing.reason)).collect(),
            overhead_ratio: kept.highest_cost(from, to),
            overhead_budget_ratio: self.around.budget,
        })
    }

    pub fn named(&self) -> Arc<VecDeque<(Duration, RecordId)>> {
        self.kept.as_ref().map(|kept| kept.named.clone()).unwrap_or_default()
    }

    /// Returns how often it has lost its keys, if they are counted.
    pub fn key_losses(&self) -> Option<KeyLosses> {
        self.kept.as_ref()?.losses.began
    }

    /// Drops all that depends on the plan, which was found wrong.
    pub fn withdraw(&mut self) {
        self.profiles.stop_for_records();
        if let Some(kept) = self.kept.take() {
            for tell in kept.tell {
                let _ = tell.send(Err("the probe plan was found wrong, so nothing of it is kept".to_owned()));
            }
        }
    }

    /// Ends all profiles, and waits until they are ready.
    pub fn finish_profiles(&mut self) {
        self.profiles.stop();
        let until = Instant::now() + PROFILE_PATIENCE;
        while self.profiles.settle(monotonic()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Hands over all records with what there is: nothing more will be read. `ended` says when and how the server
    /// ended, if that is to be recorded.
    pub fn finish(&mut self, plan: &ProbePlan, timeline: Option<&Timeline>, ended: Option<(Duration, Ending)>) {
        self.ending = ended.map(|(_, ending)| ending);
        let all = self.kept.as_mut().map(|kept| kept.occasions.finish(ended.map(|(at, _)| at)));
        self.hand_over(all.unwrap_or_default(), plan, timeline);
    }
}

/// Returns how many keys there are, and how many have gone, if that was read.
fn key_counts(moment: &Moment, state: &ServerState) -> Option<KeyCounts> {
    let is_replica = state.members.and_then(|members| members.is_replica()) == Some(true);
    let (evicted, expired) = (moment.evicted_keys?, moment.expired_keys?);
    Some(KeyCounts { keys: moment.memory?.keys?, evicted, expired, is_replica })
}

fn recorded(label: &str, process: &ServerProcess, plan: &ProbePlan) -> RecordedServer {
    RecordedServer {
        label: label.to_owned(),
        pid: process.identity.pid,
        command: process.command.clone(),
        exe: process.exe.display().to_string(),
        product: plan.identity.product.map(str::to_owned),
        version: plan.identity.version.clone(),
        build_id: plan.identity.build_id.clone(),
    }
}

fn configuration(members: &MemberValues) -> Configuration {
    let int = |member| u32::try_from(members.get(member)?).ok();
    let is = |member| Some(members.get(member)? != 0);
    Configuration {
        maxmemory: members.get(Member::Maxmemory),
        maxmemory_policy: members.policy().map(str::to_owned),
        hz: int(Member::ConfigHz),
        active_expire_effort: int(Member::ActiveExpireEffort),
        lazyfree_lazy_eviction: is(Member::LazyfreeLazyEviction),
        lazyfree_lazy_user_del: is(Member::LazyfreeLazyUserDel),
        lazyfree_lazy_user_flush: is(Member::LazyfreeLazyUserFlush),
        maxmemory_samples: int(Member::MaxmemorySamples),
        maxmemory_eviction_tenacity: int(Member::MaxmemoryEvictionTenacity),
        maxmemory_clients: members.get(Member::MaxmemoryClients).map(u64::cast_signed),
        client_output_buffer_limit: members.output_limits(),
        tracking_table_max_keys: members.get(Member::TrackingTableMaxKeys),
        databases: int(Member::Dbnum),
        repl_backlog_size: members.get(Member::ReplBacklogSize),
        io_threads: int(Member::IoThreadsNum),
    }
}
