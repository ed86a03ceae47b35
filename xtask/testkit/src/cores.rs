//! A core for the server alone, and the others for everything else: no measurement may depend on where the
//! scheduler happens to put the two.

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may use.
#[derive(Clone, Debug)]
pub struct Cores {
    /// The server's core.
    pub server: usize,
    /// The cores of everything else.
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

/// Keeps this thread, and all that it starts from now on, on these cores.
fn stay_on(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on the cores {cores:?}"))
}
