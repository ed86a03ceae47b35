//! Threads of this process and of others: the cores that they run on, and their times.

use std::time::Duration;

use anyhow::{Context as _, Result};
use procfs::process::Process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A core for the server alone, and the others for everything else: no measurement may depend on where the scheduler
/// happens to put the two.
#[derive(Clone, Debug)]
pub struct Cores {
    pub server: usize,
    pub others: Vec<usize>,
}

impl Cores {
    /// Gives the first core to the server and keeps this thread, and all that it starts, on the others.
    /// Returns `None` if there is only one core.
    pub fn split() -> Result<Option<Self>> {
        let allowed = sched_getaffinity(None).context("cannot ask which cores may be used")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let (first, others) = (cores.next(), cores.collect::<Vec<_>>());
        let Some(server) = first.filter(|_| !others.is_empty()) else {
            return Ok(None);
        };
        stay_on(&others)?;
        Ok(Some(Self { server, others }))
    }

    /// Runs `start` on the server's core, where all that it starts stays.
    pub fn on_the_servers<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        stay_on(&[self.server])?;
        let started = start();
        stay_on(&self.others)?;
        started
    }
}

fn stay_on(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on the cores {cores:?}"))
}

/// The times of a thread since it was started, by the kernel's scheduler, to the nanosecond. The clock ticks of
/// `/proc/PID/stat` are far too coarse.
pub struct SchedulerTimes {
    pub running: Duration,
    /// Time in which it could have run, but waited for a CPU.
    pub waiting: Duration,
}

impl SchedulerTimes {
    pub fn of(pid: u32, tid: u32) -> Result<Self> {
        let times = Process::new(pid.try_into()?)?.task_from_tid(tid.try_into()?)?.schedstat()?;
        let (running, waiting) = (times.sum_exec_runtime, times.run_delay);
        Ok(Self { running: Duration::from_nanos(running), waiting: Duration::from_nanos(waiting) })
    }
}
