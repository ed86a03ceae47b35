//! The server on a core of its own, and everything else of the lab on another one.

use anyhow::{Context as _, Result, ensure};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Files that the server and the lab open beside one for each connection.
const OTHER_FILES: u64 = 512;

/// Where the server and where the lab runs. None where there is only one core.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Cores {
    /// The server's core.
    pub server: usize,
    /// The core of the generator and the recorder.
    pub lab: usize,
}

/// The first two cores that this process may run on.
pub fn choose() -> Result<Option<Cores>> {
    let allowed = sched_getaffinity(None).context("cannot ask which cores may be used")?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    Ok(match (cores.next(), cores.next()) {
        (Some(server), Some(lab)) => Some(Cores { server, lab }),
        _ => None,
    })
}

/// Puts this thread, and the threads and processes that it starts from here on, on one core.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core} alone"))
}

/// Lets this process, and those that it starts, open a socket for each connection.
pub fn allow_connections(connections: usize) -> Result<()> {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{connections} connections need {needed} open files, and no more than {} are allowed: \
         raise the limit (`ulimit -Hn {needed}` as root), or ask for fewer with --connections",
        limit.maximum.unwrap_or_default()
    );
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        },
    )
    .with_context(|| format!("cannot raise the limit of open files to {needed}"))
}
