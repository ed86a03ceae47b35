//! CPU time according to the kernel's scheduler, to the nanosecond. The clock ticks of `/proc/PID/stat` are far too
//! coarse.

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
