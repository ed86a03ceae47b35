//! The tools that one would use instead: `funclatency` of Debian's libbpf-tools, and bpftrace.
//!
//! Both attach to the entry and to the return of the eviction function of one process, and keep a
//! histogram of the time between the two.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{owned::Owned, redis::Redis};

use crate::target::Target;

/// All probes are attached if there was no new one for this long.
const SETTLED: Duration = Duration::from_millis(500);

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// `funclatency` of libbpf-tools.
    Funclatency,
    /// bpftrace with an entry and a return probe.
    Bpftrace,
}

impl Rival {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Funclatency => "funclatency",
            Self::Bpftrace => "bpftrace",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Funclatency => "libbpf-tools",
            Self::Bpftrace => "bpftrace",
        }
    }

    fn program(self) -> Option<PathBuf> {
        let name = self.name();
        // Debian installs it where only root looks.
        which::which(name)
            .or_else(|_| which::which(Path::new("/usr/sbin").join(name)))
            .ok()
    }

    fn command(self, server: &Redis, target: &Target) -> Result<Command> {
        let program = self
            .program()
            .with_context(|| format!("there is no {self:?}: install {}", self.package()))?;
        let function = target.function;
        let mut command = Command::new(program);
        command.args(["-p", &server.pid().to_string()]);
        match self {
            Self::Funclatency => command.arg(format!(":{function}")),
            Self::Bpftrace => {
                let place = format!("{}:{function}", target.watched.path().display());
                command.arg("-e").arg(format!(
                    "uprobe:{place} {{ @start[tid] = nsecs; }} \
                     uretprobe:{place} /@start[tid]/ \
                     {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
                ))
            }
        };
        Ok(command)
    }
}

/// Returns the packages of the tools that are missing.
pub fn missing_packages() -> Vec<String> {
    [Rival::Funclatency, Rival::Bpftrace]
        .into_iter()
        .filter(|rival| rival.program().is_none())
        .map(|rival| rival.package().to_owned())
        .collect()
}

impl Rival {
    /// Attaches to the server until the returned process is dropped.
    pub fn watch(self, server: &Redis, target: &Target) -> Result<Owned> {
        let process = Owned::start(&mut self.command(server, target)?)?;
        // A tool says that it is attached before it is, or only into a buffer, so its open probes are counted.
        let (mut probes, mut since) = (0, Instant::now());
        process.until("the probes are attached", || {
            let now = open_probes(process.pid());
            if now != probes {
                (probes, since) = (now, Instant::now());
            }
            Ok((probes >= 2 && since.elapsed() >= SETTLED).then_some(()))
        })?;
        Ok(process)
    }
}

/// Returns how many perf events a process has open.
fn open_probes(pid: u32) -> usize {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return 0;
    };
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .filter(|link| link.as_os_str() == "anon_inode:[perf_event]")
        .count()
}
