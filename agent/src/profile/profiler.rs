//! Takes profiles.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use evictscope_host::{Executable, ServerProcess};
use evictscope_probes::{ProbeError, Sampler, Sampling};
use evictscope_records::NoProfile;
use evictscope_records::profile::Profile;

use super::mapped_files::Subject;
use super::refused::refused;
use super::worker::{Request, work};

/// How many samples a second the trial asks for.
const TRIAL_HZ: u32 = 49;

/// Takes profiles. Clones share the thread that reads and unwinds the samples, and drops the copied stacks at once.
#[derive(Clone)]
pub struct Profiler {
    sampler: Sampler,
    requests: Sender<Request>,
}

/// A profile that is being taken. Dropping it ends it.
pub struct Profiling {
    sampling: Option<Sampling>,
    requests: Sender<Request>,
    taken: Option<Receiver<Profile>>,
    spent_ns: u64,
    foreign: u64,
}

impl Profiler {
    /// Starts the thread. It unwinds by tables that anybody may have made, so call this after giving up capabilities,
    /// and load `sampler` before. Debug files are looked for below `debug_dirs` first.
    ///
    /// # Errors
    ///
    /// Fails if the program was not loaded, with what to do about it, or no thread can be started.
    pub fn start(sampler: Result<Sampler, ProbeError>, debug_dirs: Vec<PathBuf>) -> Result<Self, NoProfile> {
        let sampler = sampler.map_err(|error| NoProfile(error.to_string()))?;
        let (sender, requests) = channel();
        let own = sampler.clone();
        std::thread::Builder::new()
            .name("profiler".to_owned())
            .spawn(move || work(&own, &requests, debug_dirs))
            .map_err(|error| NoProfile(format!("cannot start the thread for profiles: {error}")))?;
        Ok(Self { sampler, requests: sender })
    }

    /// Begins to take a profile of a server's main thread. Several profiles of one server can be taken at the same
    /// time.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the event, with the setting to change.
    pub fn begin(
        &self,
        process: &ServerProcess,
        executable: &Arc<Executable>,
        hz: u32,
    ) -> Result<Profiling, NoProfile> {
        self.begin_of(
            Subject {
                pid: process.identity.pid,
                executable: executable.clone(),
                path: process.exe.clone(),
                command: process.command.clone(),
            },
            hz,
        )
    }

    /// Does the same for a process that need not be a server.
    pub fn begin_of(&self, subject: Subject, hz: u32) -> Result<Profiling, NoProfile> {
        let pid = subject.pid;
        let sampling = self.sampler.sample(pid, hz);
        let sampling = sampling.map_err(|error| refused(pid, &error))?;
        let request = Request::Begin { cookie: sampling.cookie(), subject, hz };
        let has_ended = |_| NoProfile("the thread for profiles has ended: please report this".into());
        self.requests.send(request).map_err(has_ended)?;
        Ok(Profiling {
            sampling: Some(sampling),
            requests: self.requests.clone(),
            taken: None,
            spent_ns: 0,
            foreign: 0,
        })
    }
}

/// Checks whether the kernel lets this process take profiles.
///
/// # Errors
///
/// Fails if it does not, with what to do about it.
pub fn check(sampler: Result<Sampler, ProbeError>) -> Result<(), NoProfile> {
    let sampler = sampler.map_err(|error| NoProfile(error.to_string()))?;
    let pid = std::process::id();
    let tried = sampler.sample(pid, TRIAL_HZ).map(drop);
    tried.map_err(|error| refused(pid, &error))
}

impl Profiling {
    /// Returns what it has cost the main thread so far, in nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        let sampling = self.sampling.as_ref();
        sampling.map_or(self.spent_ns, |sampling| sampling.counts().spent_ns)
    }

    /// Returns whether the kernel numbers processes differently than this process sees them, so that no sample is
    /// taken.
    pub fn is_of_other_namespace(&self) -> bool {
        let sampling = self.sampling.as_ref();
        sampling.map_or(self.foreign, |sampling| sampling.counts().foreign) > 0
    }

    /// Ends it, without waiting: no more samples are taken.
    pub fn stop(&mut self) {
        let Some(mut sampling) = self.sampling.take() else {
            return;
        };
        sampling.stop();
        let counts = sampling.counts();
        (self.spent_ns, self.foreign) = (counts.spent_ns, counts.foreign);
        let (taken, receiver) = channel();
        self.taken = Some(receiver);
        // If the thread has ended, nothing will be taken.
        let _ = self.requests.send(Request::End { sampling, taken });
    }

    /// Returns the profile, once, when it is ready: a moment after [`Self::stop`].
    pub fn taken(&mut self) -> Option<Profile> {
        self.taken.as_ref()?.try_recv().ok()
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        self.stop();
    }
}
