//! Where the main thread of a server spends its CPU time.
//!
//! [`Profiler`] has the kernel copy registers and stack at each 49th of a second of CPU time. Its thread unwinds the
//! copies and drops them at once: only names of functions are kept.
//!
//! Deliberately absent: taking the samples (`probes`), and how a stack is unwound by the tables of one file
//! (`evictscope-plan`).

mod mapped_files;
mod unwound;
mod worker;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use evictscope_host::{Confinement, Executable, LINKS, MORE_FILES, ServerProcess};
use evictscope_probes::{ProbeError, Sampler, Sampling};
use evictscope_records::NoProfile;
use evictscope_records::profile::Profile;
use rustix::io::Errno;

pub use mapped_files::ProfiledProcess;
use worker::{ProfilerRequest, work};

/// How many samples a second the trial asks for.
const TRIAL_HZ: u32 = 49;
/// The file with the setting that says who may open events.
const SETTING: &str = "/proc/sys/kernel/perf_event_paranoid";
/// The highest value at which CAP_PERFMON suffices. Debian and Ubuntu have higher ones, at which their kernels require
/// CAP_SYS_ADMIN.
const HIGHEST: i64 = 2;

/// Takes profiles. Clones share the thread that reads and unwinds the samples, and drops the copied stacks at once.
#[derive(Clone)]
pub struct Profiler {
    sampler: Sampler,
    requests: Sender<ProfilerRequest>,
}

/// A profile that is being taken. Dropping it ends it.
pub struct Profiling {
    sampling: Option<Sampling>,
    requests: Sender<ProfilerRequest>,
    taken: Option<Receiver<Profile>>,
    spent_ns: u64,
    foreign: u64,
}

impl Profiler {
    /// Starts the thread. It unwinds by tables that anybody may have made, so call this after giving up capabilities,
    /// and load `sampler` before. Debug files are looked for below `debug_dirs` first. Fails if the program was not
    /// loaded, with what to do about it, or no thread can be started.
    pub fn start(sampler: Result<Sampler, ProbeError>, debug_dirs: Vec<PathBuf>) -> Result<Self, NoProfile> {
        let sampler = sampler.map_err(|error| NoProfile(error.to_string()))?;
        let (requests, receiver) = channel();
        let profiler = Self { sampler: sampler.clone(), requests };
        std::thread::Builder::new()
            .name("profiler".to_owned())
            .spawn(move || work(&sampler, &receiver, debug_dirs))
            .map_err(|error| NoProfile(format!("cannot start the thread for profiles: {error}")))?;
        Ok(profiler)
    }

    /// Begins to take a profile of a server's main thread. Several profiles of one server can be taken at the same
    /// time. Fails if the kernel refuses the event, with the setting to change.
    pub fn begin(
        &self,
        process: &ServerProcess,
        executable: &Arc<Executable>,
        hz: u32,
    ) -> Result<Profiling, NoProfile> {
        let (executable, path, command) = (executable.clone(), process.exe.clone(), process.command.clone());
        self.begin_of(ProfiledProcess { pid: process.identity.pid, executable, path, command }, hz)
    }

    /// Does the same for a process that need not be a server.
    pub fn begin_of(&self, subject: ProfiledProcess, hz: u32) -> Result<Profiling, NoProfile> {
        let pid = subject.pid;
        let sampling = self.sampler.sample(pid, hz).map_err(|error| refused(pid, &error))?;
        let request = ProfilerRequest::Begin { cookie: sampling.cookie(), subject, hz };
        let has_ended = |_| NoProfile("the thread for profiles has ended: please report this".into());
        self.requests.send(request).map_err(has_ended)?;
        let requests = self.requests.clone();
        Ok(Profiling { sampling: Some(sampling), requests, taken: None, spent_ns: 0, foreign: 0 })
    }
}

/// Checks whether the kernel lets this process take profiles. Fails if it does not, with what to do about it.
pub fn check(sampler: Result<Sampler, ProbeError>) -> Result<(), NoProfile> {
    let sampler = sampler.map_err(|error| NoProfile(error.to_string()))?;
    let pid = std::process::id();
    sampler.sample(pid, TRIAL_HZ).map(drop).map_err(|error| refused(pid, &error))
}

impl Profiling {
    pub fn spent_ns(&self) -> u64 {
        self.sampling.as_ref().map_or(self.spent_ns, |sampling| sampling.counts().spent_ns)
    }

    /// Returns whether the kernel numbers processes differently than this process sees them, so that no sample is
    /// taken.
    pub fn is_of_other_namespace(&self) -> bool {
        self.sampling.as_ref().map_or(self.foreign, |sampling| sampling.counts().foreign) > 0
    }

    pub fn is_stopped(&self) -> bool {
        self.sampling.is_none()
    }

    /// Ends it, without waiting: no more samples are taken.
    pub fn stop(&mut self) {
        let Some(mut sampling) = self.sampling.take() else { return };
        sampling.stop();
        let counts = sampling.counts();
        (self.spent_ns, self.foreign) = (counts.spent_ns, counts.foreign);
        let (taken, receiver) = channel();
        self.taken = Some(receiver);
        // If the thread has ended, nothing will be taken.
        let _ = self.requests.send(ProfilerRequest::End { sampling, taken });
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

/// Says why the main thread of a process cannot be sampled, and what to do.
fn refused(pid: u32, error: &io::Error) -> NoProfile {
    NoProfile(match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::SRCH) => format!("process {pid} has ended"),
        Some(Errno::ACCESS | Errno::PERM) => not_permitted(setting()),
        Some(Errno::MFILE) => format!("too many open files: {MORE_FILES}"),
        _ if error.kind() == io::ErrorKind::StorageFull => {
            "too many profiles are being taken at the same time: try again later".to_owned()
        }
        _ => format!("the kernel does not open the event that samples process {pid}: {error}"),
    })
}

/// Reads the setting; `None` if the kernel has none.
fn setting() -> Option<i64> {
    std::fs::read_to_string(SETTING).ok()?.trim().parse().ok()
}

fn not_permitted(setting: Option<i64>) -> String {
    let refuses = "the kernel refuses the event that takes samples";
    let setting = match setting {
        Some(value) if value > HIGHEST => {
            return format!(
                "{refuses}, as kernel.perf_event_paranoid is {value}, where only CAP_SYS_ADMIN may open it: `sysctl kernel.perf_event_paranoid={HIGHEST}` (and a line in /etc/sysctl.d to keep it), or run evictscope with CAP_SYS_ADMIN"
            );
        }
        Some(value) => format!("kernel.perf_event_paranoid is {value}"),
        None => "there is no kernel.perf_event_paranoid".to_owned(),
    };
    let advice = Confinement::of_process().lacks_links(LINKS);
    format!("{refuses} ({setting}); {advice}")
}

#[cfg(test)]
mod tests {
    use super::not_permitted;

    #[test]
    fn the_setting_is_named_where_it_is_the_reason() {
        let debian = not_permitted(Some(3));
        assert!(debian.contains("kernel.perf_event_paranoid is 3"), "{debian}");
        assert!(debian.contains("sysctl kernel.perf_event_paranoid=2"), "{debian}");
        let other = not_permitted(Some(2));
        assert!(other.contains("paranoid is 2") && !other.contains("sysctl k"), "{other}");
    }
}
