//! The thread that reads samples and unwinds them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use evictscope_plan::Work;
use evictscope_probes::{Sample, Sampler, Sampling};
use evictscope_records::profile::Profile;
use evictscope_telemetry::microseconds;
use rustix::process::setpriority_process;

use super::collected::Collected;
use super::mapped_files::{Files, Mappings, Subject};
use super::unwound::unwind;

/// How willing the thread is to leave the CPU to others. The kernel's buffer holds samples for two seconds of a server.
const NICE: i32 = 5;
/// How often samples are read while any are taken.
const TURN: Duration = Duration::from_millis(50);
/// How often the mappings of a process are read again, at most, because a stack led to an address that was not mapped.
const REREAD: Duration = Duration::from_secs(1);
/// Most time that unwinding may take of one profile's length. A sample takes some 30 µs, which is 0.15 %.
const MOST_WORK: f64 = 0.1;
/// What it may take at once.
const AT_ONCE: Duration = Duration::from_millis(100);

/// What the thread is asked to do.
pub enum Request {
    /// Collect the samples with this cookie.
    Begin {
        cookie: u64,
        subject: Subject,
        hz: u32,
    },
    /// No more samples are taken: hand over the profile.
    End {
        sampling: Sampling,
        taken: Sender<Profile>,
    },
}

/// A profile that is being taken.
struct Taking {
    subject: Subject,
    hz: u32,
    began: (Instant, SystemTime),
    mappings: Mappings,
    read_at: Instant,
    collected: Collected,
    worked: Duration,
    /// Samples that were not unwound, as that took too long.
    skipped: u64,
}

/// Serves requests until nobody can make any.
pub fn work(sampler: &Sampler, requests: &Receiver<Request>, debug_dirs: Vec<PathBuf>) {
    // A thread has a priority of its own, on Linux. It works without this too: the unit's filter of system calls refuses it, and
    // limits the agent to half a core instead.
    let _ = setpriority_process(None, NICE);
    let mut worker = Worker {
        files: Files::new(debug_dirs),
        work: Work::default(),
        taking: HashMap::new(),
    };
    loop {
        let request = match worker.taking.is_empty() {
            true => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => requests.recv_timeout(TURN),
        };
        match request {
            Ok(Request::Begin {
                cookie,
                subject,
                hz,
            }) => worker.begin(cookie, subject, hz),
            Ok(Request::End { sampling, taken }) => {
                worker.drain(sampler);
                // Nobody waits for it any more where the profiling was dropped.
                let _ = taken.send(worker.end(&sampling));
            }
            Err(RecvTimeoutError::Timeout) => worker.drain(sampler),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

struct Worker {
    files: Files,
    work: Work,
    taking: HashMap<u64, Taking>,
}

impl Worker {
    fn begin(&mut self, cookie: u64, subject: Subject, hz: u32) {
        let began = (Instant::now(), SystemTime::now());
        let mappings = Mappings::read(&subject, &mut self.files).unwrap_or_default();
        let taking = Taking {
            subject,
            hz,
            began,
            mappings,
            read_at: Instant::now(),
            collected: Collected::default(),
            worked: Duration::ZERO,
            skipped: 0,
        };
        self.taking.insert(cookie, taking);
    }

    fn drain(&mut self, sampler: &Sampler) {
        let Self {
            files,
            work,
            taking,
        } = self;
        sampler.drain(|sample| {
            // One of a profile that has ended is dropped.
            if let Some(taking) = taking.get_mut(&sample.cookie) {
                taking.add(&sample, files, work);
            }
        });
    }

    fn end(&mut self, sampling: &Sampling) -> Profile {
        let Some(taking) = self.taking.remove(&sampling.cookie()) else {
            return Profile::default();
        };
        let counts = sampling.counts();
        let (since, at) = taking.began;
        let mut profile = Profile {
            began_us: at
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, microseconds),
            length_us: microseconds(since.elapsed()),
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
    fn add(&mut self, sample: &Sample<'_>, files: &mut Files, work: &mut Work) {
        let begun = Instant::now();
        let allowed = self.began.0.elapsed().mul_f64(MOST_WORK) + AT_ONCE;
        if self.worked > allowed {
            self.skipped += 1;
            return;
        }
        let mut unwound = unwind(sample, &self.mappings, work);
        if unwound.is_elsewhere && self.read_at.elapsed() > REREAD {
            self.read_at = Instant::now();
            // A process that has ended keeps what was read before.
            if let Ok(mappings) = Mappings::read(&self.subject, files) {
                self.mappings = mappings;
                unwound = unwind(sample, &self.mappings, work);
            }
        }
        self.collected.add(unwound);
        self.worked += begun.elapsed();
    }
}
