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

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{owned::Owned, redis::Redis};
use rustix::process::Signal;
use serde_json::Value;

use crate::target::Target;

/// All probes are attached where there was no new one for this long.
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
        // Debian has it where only root looks.
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
                let place = format!("{}:{function}", target.executable.display());
                command.args(["-f", "json", "-e"]).arg(format!(
                    "uprobe:{place} {{ @start[tid] = nsecs; }} \
                     uretprobe:{place} /@start[tid]/ \
                     {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
                ))
            }
        };
        Ok(command)
    }

    /// Returns the number of calls in what it printed in the end.
    fn calls(self, output: &str) -> f64 {
        match self {
            Self::Funclatency => output.lines().filter_map(funclatency_count).sum(),
            Self::Bpftrace => output.lines().filter_map(bpftrace_count).sum(),
        }
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

/// A rival at work.
pub struct Watching {
    rival: Rival,
    process: Owned,
}

impl Watching {
    /// Attaches to the server.
    pub fn start(rival: Rival, server: &Redis, target: &Target) -> Result<Self> {
        let process = Owned::start(&mut rival.command(server, target)?)?;
        // A tool says that it is attached before it is, or only into a buffer. Its open probes tell.
        let (mut probes, mut since) = (0, Instant::now());
        process.until("the probes are attached", || {
            let now = open_probes(process.pid());
            if now != probes {
                (probes, since) = (now, Instant::now());
            }
            Ok((probes >= 2 && since.elapsed() >= SETTLED).then_some(()))
        })?;
        Ok(Self { rival, process })
    }

    /// Ends it as Ctrl-C does, and returns how many calls it counted.
    pub fn finish(self) -> Result<f64> {
        self.process.end(Signal::INT)?;
        let output = self.process.log()?;
        let calls = self.rival.calls(&output);
        ensure!(calls > 0.0, "{:?} counted nothing:\n{output}", self.rival);
        Ok(calls)
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

/// Returns the count of a line such as `512 -> 1023 : 199534 |****|`.
fn funclatency_count(line: &str) -> Option<f64> {
    let (range, rest) = line.split_once(':')?;
    range.split_once("->")?;
    rest.split('|').next()?.trim().parse().ok()
}

/// Returns the count of a line such as `{"type": "hist", "data": {"@ns": [{"min": 512, "max": 1023, "count": 9}]}}`.
fn bpftrace_count(line: &str) -> Option<f64> {
    let line: Value = serde_json::from_str(line).ok()?;
    let buckets = line.get("data")?.get("@ns")?.as_array()?;
    Some(
        buckets
            .iter()
            .filter_map(|bucket| bucket.get("count")?.as_f64())
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tools_outputs_are_read() {
        let funclatency = "Tracing :performEvictions.  Hit Ctrl-C to exit\n\n     \
             nsec                : count    distribution\n       \
             256 -> 511        : 7        |*         |\n       \
             512 -> 1023       : 199534   |**********|\nExiting trace of :performEvictions\n";
        assert_eq!(Rival::Funclatency.calls(funclatency), 199_541.0);
        let bpftrace = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}\n\n\
             {\"type\": \"hist\", \"data\": {\"@ns\": [{\"min\": 512, \"max\": 1023, \"count\": 40}, \
             {\"min\": 1024, \"max\": 2047, \"count\": 2}]}}\n\
             {\"type\": \"map\", \"data\": {\"@start\": {\"7\": 5}}}\n";
        assert_eq!(Rival::Bpftrace.calls(bpftrace), 42.0);
    }
}
