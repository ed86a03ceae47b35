//! How long a process's main thread had to wait for a CPU.

use procfs::process::Process;

/// A process whose scheduling is looked at again and again: it stays the same process, whichever gets
/// its number when it has ended.
#[derive(Debug)]
pub struct Scheduling(Process);

impl Scheduling {
    /// Of a running process; `None` where it is gone, or may not be looked at.
    pub fn of(pid: u32) -> Option<Self> {
        Process::new(pid.try_into().ok()?).ok().map(Self)
    }

    /// Nanoseconds for which the main thread was ready to run and had no CPU, be it taken by others
    /// or withheld by a quota, since it began (`/proc/PID/schedstat`); `None` where the process has
    /// ended, or the kernel does not count this.
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
