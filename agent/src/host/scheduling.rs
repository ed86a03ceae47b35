//! Measures how long a process's main thread had to wait for a CPU.

use procfs::process::Process;

/// A handle on the scheduling of one process, which no later process with the same pid can take over.
#[derive(Debug)]
pub struct Scheduling(Process);

impl Scheduling {
    /// Opens a running process. Returns `None` if it has ended or access is denied.
    pub fn of(pid: u32) -> Option<Self> {
        Process::new(pid.try_into().ok()?).ok().map(Self)
    }

    /// Returns for how many nanoseconds since its start the main thread was ready to run but had no
    /// CPU, because of other threads or a quota (`/proc/PID/schedstat`). Returns `None` if the process
    /// has ended or the kernel does not count this.
    pub fn waiting_ns(&self) -> Option<u64> {
        self.0.schedstat().ok().map(|counted| counted.run_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::Scheduling;

    #[test]
    fn the_wait_of_a_process_never_goes_back() {
        let own = Scheduling::of(std::process::id());
        let wait = || own.as_ref().and_then(Scheduling::waiting_ns);
        let first = wait();
        std::thread::yield_now();
        assert!(first.is_some() && wait() >= first);
        assert!(Scheduling::of(u32::MAX).is_none());
    }
}
