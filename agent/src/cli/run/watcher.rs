//! The loop that finds servers, attaches to them, and reads what is counted.
//!
//! It runs in a thread of its own: looking at processes, planning, attaching and reading maps all
//! block. What it learns goes to the exporter through [`Shared`]; nothing comes back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evictscope_abi::{AllocatorCounters, MemberValues, SampleStats, ServerConfig};
use rustix::time::{ClockId, clock_gettime};

use super::super::cost::probed_sites;
use super::burst_log::log_burst;
use super::options::RequestedMode;
use super::plans::Plans;
use super::service::Progress;
use crate::export::{ExportedServer, Shared};
use crate::host::{Identity, Scan, Scanner, Scheduling, ServerProcess, labels, memory};
use crate::probes::{Attachment, Probes, Target, server_config};
use crate::telemetry::{
    AutoMode, Cycle, HitCosts, Observation, Overhead, OverheadBudget, ProbeMode, ServerState,
    Snapshot, Timeline, Withdrawal,
};
use evictscope_plan::{EVICTION_CALL, ProbePlan, TracedFunction};

/// How often the host is searched for servers; one that starts is to be seen within 2 s.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// How often each server's counters are read.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// The kernel samples a main thread only while it is on CPU, and an idle one hardly is: when its
/// last sample is older than this, the agent reads the members itself.
const STALE_SAMPLE: Duration = Duration::from_millis(200);
/// How often the kernel's bins are read, which it keeps for ten seconds.
const BINS_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait before trying again a server that could not be attached.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The loop and all it holds.
pub struct Watcher {
    probes: Probes,
    costs: HitCosts,
    scanner: Scanner,
    mode: RequestedMode,
    budget: OverheadBudget,
    shared: Shared,
    progress: Progress,
    plans: Plans,
    /// Servers to attach to, one in each turn of the loop: attaching takes up to a second, and the
    /// others are to be read meanwhile.
    pending: VecDeque<ServerProcess>,
    watched: HashMap<Identity, Watched>,
    failed: HashMap<Identity, Failure>,
    hidden: HashSet<u32>,
}

/// A server that is attached to.
struct Watched {
    process: ServerProcess,
    plan: Arc<ProbePlan>,
    config: ServerConfig,
    load_bias: u64,
    attachment: Attachment,
    /// The mode that it is in.
    mode: ProbeMode,
    /// What chooses the mode; none where the user has chosen, or there is no choice.
    auto: Option<AutoMode>,
    withdrawn: Option<Withdrawal>,
    state: ServerState,
    /// Phases and bursts; none where evicting calls are not seen.
    cycle: Option<Cycle>,
    scheduling: Option<Scheduling>,
    /// The last ten minutes; none where evicting calls are not seen.
    timeline: Option<Arc<Mutex<Timeline>>>,
    /// When the kernel's bins were last read, monotonic.
    bins_read: Duration,
    overhead: Overhead,
}

/// A server that could not be attached to.
struct Failure {
    at: Instant,
    reason: String,
}

impl Watcher {
    /// A watcher that has not looked yet.
    #[expect(clippy::too_many_arguments, reason = "each is a part of it")]
    pub fn new(
        probes: Probes,
        costs: HitCosts,
        scanner: Scanner,
        mode: RequestedMode,
        budget: OverheadBudget,
        plans: Plans,
        shared: Shared,
        progress: Progress,
    ) -> Self {
        Self {
            probes,
            costs,
            scanner,
            mode,
            budget,
            shared,
            progress,
            plans,
            pending: VecDeque::new(),
            watched: HashMap::new(),
            failed: HashMap::new(),
            hidden: HashSet::new(),
        }
    }

    /// Watches until told to stop, then detaches from every server.
    pub fn watch(mut self, stop: &Receiver<()>) {
        let mut next_scan = Instant::now();
        let mut is_ready = false;
        loop {
            let begun = Instant::now();
            if begun >= next_scan {
                self.look_for_servers();
                next_scan = begun + SCAN_INTERVAL;
            }
            if let Some(process) = self.pending.pop_front() {
                self.add(process);
            }
            self.read_servers();
            self.change_modes();
            if !is_ready && self.pending.is_empty() {
                is_ready = true;
                if self.watched.is_empty() {
                    tracing::info!(
                        "no server is watched now; those that start later will be found"
                    );
                }
            }
            if is_ready {
                self.publish();
            }
            self.progress.turn();
            let rest = match self.pending.is_empty() {
                true => SNAPSHOT_INTERVAL.saturating_sub(begun.elapsed()),
                false => Duration::ZERO,
            };
            match stop.recv_timeout(rest) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for (_, watched) in self.watched.drain() {
            self.probes.detach(watched.attachment);
        }
        self.probes.finish();
    }

    fn look_for_servers(&mut self) {
        let scan = match self.scanner.scan() {
            Ok(scan) => scan,
            Err(error) => {
                tracing::warn!("{error}");
                return;
            }
        };
        self.drop_ended(&scan);
        for server in &scan.hidden {
            if self.hidden.insert(server.pid) {
                tracing::warn!(pid = server.pid, "cannot watch this server: {}", server.why);
            }
        }
        self.hidden
            .retain(|pid| scan.hidden.iter().any(|server| server.pid == *pid));
        let is_due = |process: &ServerProcess| {
            let tried = self.failed.get(&process.identity);
            !self.watched.contains_key(&process.identity)
                && tried.is_none_or(|failure| failure.at.elapsed() >= RETRY_INTERVAL)
        };
        self.pending = scan.servers.into_iter().filter(is_due).collect();
    }

    fn drop_ended(&mut self, scan: &Scan) {
        let running = |identity: &Identity| {
            scan.servers
                .iter()
                .any(|server| server.identity == *identity)
        };
        let ended = self.watched.extract_if(|identity, _| !running(identity));
        let ended: Vec<Watched> = ended.map(|(_, watched)| watched).collect();
        for watched in ended {
            tracing::info!(
                pid = watched.process.identity.pid,
                server = watched.process.name,
                "server has ended"
            );
            self.probes.detach(watched.attachment);
        }
        self.failed.retain(|identity, _| running(identity));
        self.plans.forget_unused();
    }

    fn add(&mut self, process: ServerProcess) {
        let identity = process.identity;
        let (pid, name) = (identity.pid, process.name.clone());
        match self.attach(process) {
            Ok(watched) => {
                tracing::info!(
                    pid,
                    server = name,
                    version = watched.plan.identity.version,
                    probes = watched.attachment.probes(),
                    mode = %watched.mode,
                    "attached"
                );
                if watched.auto.is_some() && !watched.plan.counts_commands() {
                    tracing::info!(
                        pid,
                        server = name,
                        "stays in evicting-only mode: its counter of commands was not found, so \
                         what every-call mode would cost is not known; --probe-mode every-call \
                         chooses it all the same"
                    );
                }
                for missing in &watched.plan.not_found {
                    tracing::warn!(
                        pid,
                        server = name,
                        "{} is not exported: {}",
                        missing.item,
                        missing.reason
                    );
                }
                self.failed.remove(&identity);
                self.watched.insert(identity, watched);
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let known = self
                    .failed
                    .get(&identity)
                    .is_some_and(|failure| failure.reason == reason);
                if !known {
                    tracing::warn!(pid, server = name, "cannot watch this server: {reason}");
                }
                let at = Instant::now();
                self.failed.insert(identity, Failure { at, reason });
            }
        }
    }

    fn attach(&mut self, process: ServerProcess) -> anyhow::Result<Watched> {
        let plan = self.plans.plan(&process)?;
        if let Some(why) = plan.unusable_reason() {
            anyhow::bail!("{why}; --process-match says which processes are servers");
        }
        let pid = process.identity.pid;
        let load_bias = memory::load_bias(pid, plan.identity.entry_point)?;
        let target = Target {
            pid,
            exe: &process.exe_proc_path,
            load_bias,
        };
        // Where no-op calls cannot be counted, every-call mode would only cost.
        let function = plan.function(EVICTION_CALL.description);
        let every_call = function.and_then(TracedFunction::every_call);
        let evicting = function.and_then(TracedFunction::inner_span);
        let mode = match (self.mode, every_call) {
            (RequestedMode::EveryCall, Some(_)) => ProbeMode::EveryCall,
            _ => ProbeMode::EvictingOnly,
        };
        let auto = match (self.mode, every_call) {
            (RequestedMode::Auto, Some(_)) => Some(AutoMode::new(self.budget)),
            _ => None,
        };
        let found = monotonic();
        Ok(Watched {
            attachment: self.probes.attach(target, &plan, mode)?,
            config: server_config(target, &plan),
            overhead: Overhead::new(self.costs, probed_sites(&plan)),
            cycle: evicting.map(|_| Cycle::new(found)),
            timeline: evicting.map(|_| Arc::new(Mutex::new(Timeline::new(found)))),
            bins_read: found,
            scheduling: Scheduling::of(pid),
            plan,
            load_bias,
            process,
            mode,
            auto,
            withdrawn: None,
            state: ServerState::new(),
        })
    }

    fn read_servers(&mut self) {
        for watched in self.watched.values_mut() {
            // Before the counters are read, so that no call that they miss is earlier.
            let (at, unix_time) = (monotonic(), unix_time());
            let (evictions, samples) = match self.probes.read(&watched.attachment) {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!(pid = watched.process.identity.pid, "{error}");
                    continue;
                }
            };
            let now = monotonic();
            let idle_members = read_if_stale(watched, &samples, now);
            watched.state.apply(&Snapshot {
                evictions,
                samples,
                idle_members,
            });
            withdraw_if_wrong(&mut self.probes, watched);
            let waiting = watched.scheduling.as_ref();
            let waiting = waiting.and_then(Scheduling::waiting_ns);
            let seen =
                Observation::new(at, unix_time, &evictions, &samples, &watched.state, waiting);
            keep_timeline(&self.probes, watched, &seen);
            let bursts = watched.cycle.as_mut().map(|cycle| cycle.observe(&seen));
            for burst in bursts.unwrap_or_default() {
                log_burst(&watched.process, &burst);
            }
            let cost = watched.overhead.update(now, &watched.state);
            if let (Some(auto), Some(cost)) = (&mut watched.auto, cost) {
                auto.decide(now, cost);
            }
        }
    }

    /// Brings servers into the mode that was decided on. Attaching blocks, so that is done for one
    /// of them at a time.
    fn change_modes(&mut self) {
        for watched in self.watched.values_mut() {
            let wanted = watched.auto.as_ref().map_or(watched.mode, AutoMode::mode);
            if wanted != watched.mode {
                change_mode(&mut self.probes, watched, wanted);
                if wanted == ProbeMode::EveryCall {
                    break;
                }
            }
        }
    }

    fn publish(&self) {
        let mut servers: Vec<&Watched> = self.watched.values().collect();
        servers.sort_by_key(|watched| watched.process.identity.pid);
        let names: Vec<(u32, &str)> = servers
            .iter()
            .map(|watched| (watched.process.identity.pid, watched.process.name.as_str()))
            .collect();
        let exported = servers
            .iter()
            .zip(labels(&names))
            .map(|(watched, label)| ExportedServer {
                label,
                pid: watched.process.identity.pid,
                exe: watched.process.exe.clone(),
                plan: watched.plan.clone(),
                mode: watched.mode,
                withdrawn: watched.withdrawn.map(|withdrawal| withdrawal.broken),
                overhead_ratio: watched.overhead.ratio(),
                state: watched.state.clone(),
                cycle: watched.cycle.clone(),
                timeline: watched.timeline.clone(),
            });
        self.shared.publish(exported.collect());
    }
}

/// Withdraws the plan of a server that does what its plan says it cannot, for the life of the
/// process.
fn withdraw_if_wrong(probes: &mut Probes, watched: &mut Watched) {
    if watched.withdrawn.is_some() {
        return;
    }
    let Some(withdrawal) = Withdrawal::due(&watched.state) else {
        return;
    };
    watched.withdrawn = Some(withdrawal);
    watched.auto = None;
    watched.cycle = None;
    watched.timeline = None;
    watched.mode = ProbeMode::EvictingOnly;
    probes.withdraw(&mut watched.attachment);
    let pid = watched.process.identity.pid;
    tracing::error!(
        pid,
        server = watched.process.name,
        exe = %watched.process.exe.display(),
        build_id = watched.plan.identity.build_id.as_deref().unwrap_or("none"),
        check = %withdrawal.broken,
        "the probe plan is wrong for this server and was withdrawn: {}, at {} of {} evicting calls. \
         What rests on the plan is no longer exported; please report this with the output of \
         `evictscope inspect {pid} --json`",
        withdrawal.broken.meaning(),
        withdrawal.failed,
        withdrawal.tested,
    );
}

fn change_mode(probes: &mut Probes, watched: &mut Watched, mode: ProbeMode) {
    let target = Target {
        pid: watched.process.identity.pid,
        exe: &watched.process.exe_proc_path,
        load_bias: watched.load_bias,
    };
    match probes.set_mode(&mut watched.attachment, target, &watched.plan, mode) {
        Ok(()) => {
            tracing::info!(
                pid = target.pid,
                server = watched.process.name,
                %mode,
                "the probe mode follows what the probes cost"
            );
            watched.mode = mode;
        }
        Err(error) => {
            tracing::warn!(pid = target.pid, "stays in {} mode: {error}", watched.mode);
            if let Some(auto) = &mut watched.auto {
                auto.leave(monotonic());
            }
        }
    }
}

/// The members, read by the agent, where the kernel's reading is stale; `None` too where the
/// process has just ended.
fn read_if_stale(watched: &Watched, samples: &SampleStats, now: Duration) -> Option<MemberValues> {
    let sampled = Duration::from_nanos(samples.members.read_ns);
    if now.saturating_sub(sampled) < STALE_SAMPLE {
        return None;
    }
    let config = &watched.config;
    let members = config.members.iter().copied();
    let addresses: Vec<u64> = members
        .filter(|address| *address != 0)
        .chain(counter_addresses(&config.used_memory))
        .collect();
    let words = memory::read_words(watched.process.identity.pid, &addresses).ok()?;
    let mut words = words.into_iter();
    let mut values = MemberValues {
        read_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
        known: 0,
        values: [0; evictscope_abi::MEMBERS],
        used_memory: 0,
        used_memory_known: 0,
    };
    for (index, address) in config.members.iter().enumerate() {
        if *address != 0 {
            values.values[index] = words.next()?;
            values.known |= 1 << index;
        }
    }
    if config.used_memory.address != 0 {
        // Threads can free what others allocated, so a counter can be negative.
        values.used_memory = words.fold(0, u64::wrapping_add);
        values.used_memory_known = 1;
    }
    Some(values)
}

/// Where the words are that add up to the allocator's counter: those of threads that there are not
/// are 0.
fn counter_addresses(counters: &AllocatorCounters) -> impl Iterator<Item = u64> + use<> {
    let AllocatorCounters {
        address,
        stride,
        count,
        overflow,
        ..
    } = *counters;
    (0..u64::from(count))
        .map(move |index| address.wrapping_add(index * 8 * u64::from(stride)))
        .chain([overflow])
        .filter(|address| *address != 0)
}

/// The clock that the programs use (`bpf_ktime_get_ns`).
fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Keeps the last ten minutes of a server.
fn keep_timeline(probes: &Probes, watched: &mut Watched, seen: &Observation) {
    let Some(timeline) = &watched.timeline else {
        return;
    };
    // Whoever panicked, it holds numbers only.
    let mut timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
    timeline.sample(seen.at, seen.used_memory, seen.client_buffers);
    if seen.at.saturating_sub(watched.bins_read) < BINS_INTERVAL {
        return;
    }
    watched.bins_read = seen.at;
    match probes.read_bins(&watched.attachment) {
        Ok((evicting, cpu)) => timeline.take_in(seen.at, seen.unix_time, &evicting, &cpu),
        Err(error) => tracing::warn!(pid = watched.process.identity.pid, "{error}"),
    }
}

/// The time of day, since 1970.
fn unix_time() -> Duration {
    // A clock before 1970 is not set.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
