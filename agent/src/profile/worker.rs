//! The thread that reads samples, unwinds them, and counts their stacks.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use evictscope_plan::Work;
use evictscope_probes::{Sampler, Sampling, StackSample};
use evictscope_records::profile::{Activity, Profile, Stack};
use evictscope_telemetry::microseconds;
use rustix::process::setpriority_process;

use super::mapped_files::{Files, Mappings, ProfiledProcess};
use super::unwound::{Unwound, unwind};
use crate::clock::monotonic;

const NICE: i32 = 5;
/// How many samples are left in the kernel's buffer, which holds more, until the mappings of a server are read.
const HELD: u64 = 100;
/// How long a profile that is over waits for the mappings of its server. Who asked for it may wait little longer.
const AWAITED: Duration = Duration::from_secs(20);
/// How often samples are read while any are taken.
const TURN: Duration = Duration::from_millis(50);
/// The least time before the mappings of a process are read again because a stack led to an address that was not
/// mapped.
const REREAD: Duration = Duration::from_secs(1);
/// The largest share of a profile's length that unwinding may take. A sample takes some 30 µs, which is 0.15 %.
const MOST_WORK: f64 = 0.1;
/// What it may take beyond that.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The most different stacks to keep; a minute of a server has some hundreds.
const MAX_STACKS: usize = 20_000;
const MAX_FUNCTIONS: usize = 20_000;

pub enum ProfilerRequest {
    /// Collect the samples with this cookie.
    Begin { cookie: u64, subject: ProfiledProcess, hz: u32 },
    /// No more samples are taken: hand over the profile.
    End { sampling: Sampling, taken: Sender<Profile> },
}

struct Taking {
    subject: ProfiledProcess,
    hz: u32,
    /// Monotonic.
    began: Duration,
    /// `None` until they are read.
    mappings: Option<Mappings>,
    /// When that was asked for.
    read_at: Instant,
    is_being_read: bool,
    collected: Collected,
    worked: Duration,
    /// Samples that were read from the kernel's buffer.
    drained: u64,
    /// Samples that were not unwound, because that took too long, or no mappings had been read yet.
    skipped: u64,
}

type Read = (u64, Option<Mappings>);

/// Serves requests until nobody can make any.
pub fn work(sampler: &Sampler, requests: &Receiver<ProfilerRequest>, debug_dirs: Vec<PathBuf>) {
    // On Linux, each thread has its own priority. It works without this too: the unit's filter of system calls refuses
    // it, and the unit limits the agent to half a core instead.
    let _ = setpriority_process(None, NICE);
    let mut worker = Worker {
        files: Arc::new(Files::new(debug_dirs)),
        read: channel(),
        work: Work::default(),
        taking: HashMap::new(),
        over: Vec::new(),
    };
    loop {
        let request = if worker.taking.is_empty() {
            requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(TURN)
        };
        worker.take_in();
        match request {
            Ok(ProfilerRequest::Begin { cookie, subject, hz }) => worker.begin(cookie, subject, hz),
            Ok(ProfilerRequest::End { sampling, taken }) => worker.over.push((sampling, taken, monotonic())),
            Err(RecvTimeoutError::Timeout) if worker.is_held_up(sampler) => {}
            Err(RecvTimeoutError::Timeout) => worker.drain(sampler),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        worker.hand_over(sampler);
    }
}

struct Worker {
    files: Arc<Files>,
    /// The mappings that were read for profiles, by their cookies; `None` if the process has ended.
    read: (Sender<Read>, Receiver<Read>),
    work: Work,
    taking: HashMap<u64, Taking>,
    /// Those of which no more samples are taken, with the (monotonic) time when they ended.
    over: Vec<(Sampling, Sender<Profile>, Duration)>,
}

impl Worker {
    fn begin(&mut self, cookie: u64, subject: ProfiledProcess, hz: u32) {
        let mut taking = Taking {
            subject,
            hz,
            began: monotonic(),
            mappings: None,
            read_at: Instant::now(),
            is_being_read: false,
            collected: Collected::default(),
            worked: Duration::ZERO,
            drained: 0,
            skipped: 0,
        };
        taking.read(cookie, &self.files, &self.read.0);
        self.taking.insert(cookie, taking);
    }

    fn take_in(&mut self) {
        for (cookie, mappings) in self.read.1.try_iter() {
            if let Some(taking) = self.taking.get_mut(&cookie) {
                taking.is_being_read = false;
                // A process that has ended keeps what was read before.
                taking.mappings = mappings.or(taking.mappings.take());
            }
        }
    }

    /// Returns whether to wait for mappings. However long that takes on a busy machine, nothing is lost while the
    /// buffer has room; and what is in it is kept as long as no other profile needs the room.
    fn is_held_up(&self, sampler: &Sampler) -> bool {
        let held = |(cookie, taking): (&u64, &Taking)| sampler.taken(*cookie).saturating_sub(taking.drained);
        let waiting = self.taking.values().filter(|taking| taking.is_waiting()).count();
        let has_room = || self.taking.iter().map(held).sum::<u64>() < HELD;
        waiting > 0 && (waiting == self.taking.len() || has_room())
    }

    fn drain(&mut self, sampler: &Sampler) {
        let Self { files, read, work, taking, .. } = self;
        sampler.drain(|sample| {
            // A sample of a profile that has ended is dropped.
            if let Some(taking) = taking.get_mut(&sample.cookie) {
                taking.add(&sample, files, &read.0, work);
            }
        });
    }

    /// Hands over the profiles that are over.
    fn hand_over(&mut self, sampler: &Sampler) {
        let is_waiting = |sampling: &Sampling| self.taking.get(&sampling.cookie()).is_some_and(Taking::is_waiting);
        let now = monotonic();
        let is_ready = |(sampling, _, ended): &mut _| !is_waiting(sampling) || now.saturating_sub(*ended) > AWAITED;
        let ready: Vec<_> = self.over.extract_if(.., is_ready).collect();
        if !ready.is_empty() {
            self.drain(sampler);
        }
        for (sampling, taken, ended) in ready {
            // Nobody waits for it if the profiling was dropped.
            let _ = taken.send(self.end(&sampling, ended));
        }
    }

    fn end(&mut self, sampling: &Sampling, ended: Duration) -> Profile {
        let Some(taking) = self.taking.remove(&sampling.cookie()) else { return Profile::default() };
        let counts = sampling.counts();
        let mut profile = Profile {
            began_us: microseconds(taking.began),
            length_us: microseconds(ended.saturating_sub(taking.began)),
            hz: taking.hz,
            lost: counts.lost + taking.skipped,
            spent_ns: counts.spent_ns,
            ..Profile::default()
        };
        taking.collected.fill(&mut profile);
        profile
    }
}

impl Taking {
    fn length(&self) -> Duration {
        monotonic().saturating_sub(self.began)
    }

    /// Returns whether its samples are of no use yet, but soon will be.
    fn is_waiting(&self) -> bool {
        self.mappings.is_none() && self.is_being_read
    }

    /// Has another thread read the mappings: a file system may not answer.
    fn read(&mut self, cookie: u64, files: &Arc<Files>, read: &Sender<Read>) {
        (self.read_at, self.is_being_read) = (Instant::now(), true);
        let (subject, files, read) = (self.subject.clone(), files.clone(), read.clone());
        let started = std::thread::Builder::new().name("mappings".to_owned()).spawn(move || {
            // Nobody waits for them if the agent is about to end.
            let _ = read.send((cookie, Mappings::read(&subject, &files).ok()));
        });
        self.is_being_read = started.is_ok();
    }

    fn add(&mut self, sample: &StackSample<'_>, files: &Arc<Files>, read: &Sender<Read>, work: &mut Work) {
        let begun = Instant::now();
        self.drained += 1;
        if self.worked > self.length().mul_f64(MOST_WORK) + AT_ONCE {
            self.skipped += 1;
            return;
        }
        let unwound = self.mappings.as_ref().map(|mappings| unwind(sample, mappings, work));
        let is_elsewhere = unwound.as_ref().is_none_or(|unwound| unwound.is_elsewhere);
        if is_elsewhere && !self.is_being_read && self.read_at.elapsed() > REREAD {
            self.read(sample.cookie, files, read);
        }
        match unwound {
            Some(unwound) => {
                let at = sample.at.saturating_sub(self.began).as_millis();
                self.collected.add(unwound, u32::try_from(at).unwrap_or(u32::MAX));
            }
            None => self.skipped += 1,
        }
        self.worked += begun.elapsed();
    }
}

/// The stacks of one profile so far.
#[derive(Default)]
struct Collected {
    functions: HashMap<String, u32>,
    /// When the samples with each stack were taken.
    stacks: HashMap<StackKey, Vec<u32>>,
    /// Samples for whose stack there was no room.
    lost: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct StackKey {
    frames: Vec<u32>,
    activity: Activity,
    is_whole: bool,
}

impl Collected {
    /// Adds the stack of a sample that was taken `at_ms` milliseconds after the profile began.
    fn add(&mut self, unwound: Unwound, at_ms: u32) {
        if self.functions.len() + unwound.functions.len() > MAX_FUNCTIONS {
            self.lost += 1;
            return;
        }
        let frames = unwound.functions.into_iter().rev().map(|name| {
            let next = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
            *self.functions.entry(name).or_insert(next)
        });
        let key = StackKey { frames: frames.collect(), activity: unwound.activity, is_whole: unwound.is_whole };
        if self.stacks.len() >= MAX_STACKS && !self.stacks.contains_key(&key) {
            self.lost += 1;
            return;
        }
        self.stacks.entry(key).or_default().push(at_ms);
    }

    /// Fills the functions and stacks of a profile, the most frequent stack first.
    fn fill(self, profile: &mut Profile) {
        let mut functions: Vec<(String, u32)> = self.functions.into_iter().collect();
        functions.sort_unstable_by_key(|(_, index)| *index);
        profile.functions = functions.into_iter().map(|(name, _)| name).collect();
        let stack = |(key, at_ms): (StackKey, Vec<u32>)| {
            let StackKey { frames, activity, is_whole } = key;
            Stack { frames, activity, is_whole, samples: at_ms.len() as u64, at_ms }
        };
        profile.stacks = self.stacks.into_iter().map(stack).collect();
        profile.stacks.sort_by_cached_key(|stack| (Reverse(stack.samples), stack.frames.clone()));
        profile.lost += self.lost;
    }
}
