//! The loop that finds servers, attaches to them, and reads what is counted.
//!
//! It runs in a thread of its own: looking at processes, planning, attaching and reading maps all
//! block. What it learns goes to the exporter through [`Shared`]; nothing comes back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use evictscope_ebpf::{AllocatorCounters, MemberValues, SampleStats, ServerConfig};
use rustix::time::{ClockId, clock_gettime};

use super::plans::Plans;
use crate::binary::{ProbePlan, Site};
use crate::export::{ExportedServer, Shared};
use crate::host::{Identity, Scan, Scanner, ServerProcess, labels, memory};
use crate::probes::{Attachment, Probes, Target, server_config};
use crate::telemetry::{HitCosts, Overhead, ProbeMode, ServerState, SingleStepped, Snapshot};

/// How often the host is searched for servers; one that starts is to be seen within 2 s.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// How often each server's counters are read.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// The kernel samples a main thread only while it is on CPU, and an idle one hardly is: when its
/// last sample is older than this, the agent reads the members itself.
const STALE_SAMPLE: Duration = Duration::from_millis(200);
/// How long to wait before trying again a server that could not be attached.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The loop and all it holds.
pub struct Watcher {
    probes: Probes,
    costs: HitCosts,
    scanner: Scanner,
    mode: ProbeMode,
    shared: Shared,
    plans: Plans,
    watched: HashMap<Identity, Watched>,
    failed: HashMap<Identity, Failure>,
    hidden: HashSet<u32>,
}

/// A server that is attached to.
struct Watched {
    process: ServerProcess,
    plan: Arc<ProbePlan>,
    config: ServerConfig,
    attachment: Attachment,
    state: ServerState,
    overhead: Overhead,
}

/// A server that could not be attached to.
struct Failure {
    at: Instant,
    reason: String,
}

impl Watcher {
    /// A watcher that has not looked yet.
    pub fn new(
        probes: Probes,
        costs: HitCosts,
        scanner: Scanner,
        mode: ProbeMode,
        shared: Shared,
    ) -> Self {
        Self {
            probes,
            costs,
            scanner,
            mode,
            shared,
            plans: Plans::default(),
            watched: HashMap::new(),
            failed: HashMap::new(),
            hidden: HashSet::new(),
        }
    }

    /// Watches until told to stop, then detaches from every server.
    pub fn watch(mut self, stop: &Receiver<()>) {
        let mut next_scan = Instant::now();
        loop {
            let begun = Instant::now();
            if begun >= next_scan {
                self.look_for_servers();
                next_scan = begun + SCAN_INTERVAL;
            }
            self.read_servers();
            self.publish();
            let rest = SNAPSHOT_INTERVAL.saturating_sub(begun.elapsed());
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
        for process in scan.servers {
            let known = self.watched.contains_key(&process.identity);
            let tried = self.failed.get(&process.identity);
            if !known && tried.is_none_or(|failure| failure.at.elapsed() >= RETRY_INTERVAL) {
                self.add(process);
            }
        }
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
                    version = watched.plan.version,
                    probes = watched.attachment.probes(),
                    mode = %self.mode,
                    "attached"
                );
                for refusal in &watched.plan.refusals {
                    tracing::warn!(
                        pid,
                        server = name,
                        "{} is not exported: {}",
                        refusal.what,
                        refusal.why
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
        let plan = self.plans.plan(&process.exe_proc_path)?;
        if let ([], Some(refusal)) = (plan.functions.as_slice(), plan.refusals.first()) {
            anyhow::bail!("{}", refusal.why);
        }
        let pid = process.identity.pid;
        let target = Target {
            pid,
            exe: &process.exe_proc_path,
            load_bias: memory::load_bias(pid, plan.entry_point)?,
        };
        let attachment = self.probes.attach(target, &plan, self.mode)?;
        let overhead = Overhead::new(self.costs, single_stepped(&plan));
        Ok(Watched {
            config: server_config(target, &plan),
            attachment,
            plan,
            process,
            state: ServerState::new(),
            overhead,
        })
    }

    fn read_servers(&mut self) {
        for watched in self.watched.values_mut() {
            match self.probes.read(&watched.attachment) {
                Ok((evictions, samples)) => {
                    let now = monotonic();
                    let idle_members = read_if_stale(watched, &samples, now);
                    watched.state.apply(&Snapshot {
                        evictions,
                        samples,
                        idle_members,
                    });
                    watched.overhead.update(now, &watched.state);
                }
                Err(error) => {
                    tracing::warn!(pid = watched.process.identity.pid, "{error}");
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
                mode: self.mode,
                noop_counted: self.mode == ProbeMode::EveryCall,
                overhead_ratio: watched.overhead.ratio(),
                state: watched.state.clone(),
            });
        self.shared.publish(exported.collect());
    }
}

/// Which of a plan's sites the kernel single-steps.
fn single_stepped(plan: &ProbePlan) -> SingleStepped {
    let stepped = |site: &Option<Site>| site.as_ref().is_some_and(|site| !site.emulated);
    SingleStepped {
        entry: stepped(&plan.sites.entry),
        goal: stepped(&plan.sites.goal),
        done: plan.sites.done.iter().any(|done| !done.site.emulated),
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
        values: [0; evictscope_ebpf::MEMBERS],
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
