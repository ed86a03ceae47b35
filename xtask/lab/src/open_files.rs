//! The limit of open files.

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the server and the lab open beside one for each connection.
const OTHER_FILES: u64 = 512;

/// Lets this process, and those that it starts, open a socket for each connection.
pub fn allow(connections: usize) -> Result<()> {
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
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .with_context(|| format!("cannot raise the limit of open files to {needed}"))
}
