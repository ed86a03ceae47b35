//! One core for the server, the others for everything else: a measurement must not depend on
//! where the scheduler happens to put the two.

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this task may use, split in two.
pub struct Cores {
    server: CpuSet,
    others: CpuSet,
}

impl Cores {
    /// Splits the cores and leaves the server's; none where there is one core only.
    pub fn split() -> Result<Option<Self>> {
        let all = sched_getaffinity(None).context("cannot ask which cores there are")?;
        if all.count() < 2 {
            return Ok(None);
        }
        let mut cores = Self {
            server: CpuSet::new(),
            others: all,
        };
        if let Some(first) = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)) {
            cores.server.set(first);
            cores.others.unset(first);
        }
        stay_on(&cores.others)?;
        Ok(Some(cores))
    }

    /// Runs `start` on the server's core, where then what it starts will stay.
    pub fn on_the_servers<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        stay_on(&self.server)?;
        let started = start();
        stay_on(&self.others)?;
        started
    }
}

/// Keeps this thread, and whatever it starts from now on, on these cores.
fn stay_on(cores: &CpuSet) -> Result<()> {
    sched_setaffinity(None, cores).context("cannot choose the cores to run on")
}
