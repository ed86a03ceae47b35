//! CPU time according to the kernel's scheduler, to the nanosecond. The clock ticks of `/proc/PID/stat` are far too coarse.

use std::time::Duration;

use anyhow::Result;
use procfs::process::Process;

/// The times of a thread since it was started.
pub struct ThreadTimes {
    /// Time on a CPU.
    pub running: Duration,
    /// Time in which it could have run, but waited for a CPU.
    pub waiting: Duration,
}

/// Returns the times of one thread.
pub fn of_thread(pid: u32, tid: u32) -> Result<ThreadTimes> {
    let thread = Process::new(pid.try_into()?)?.task_from_tid(tid.try_into()?)?;
    let times = thread.schedstat()?;
    Ok(ThreadTimes {
        running: Duration::from_nanos(times.sum_exec_runtime),
        waiting: Duration::from_nanos(times.run_delay),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_shows_in_the_account() -> Result<()> {
        let (process, thread) = (std::process::id(), rustix::thread::gettid());
        let thread = thread.as_raw_nonzero().get().cast_unsigned();
        let before = of_thread(process, thread)?.running;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let now = of_thread(process, thread)?.running;
        assert!(now > before);
        assert!(of_thread(process, u32::MAX).is_err());
        Ok(())
    }
}
