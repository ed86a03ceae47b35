//! The tools that one would take instead: `funclatency` of Debian's libbpf-tools, and bpftrace.
//!
//! Both attach to the entry and to the return of the eviction function of one process, and keep a
//! histogram of the time between the two.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::debian;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::target::Target;
use crate::{
    owned::{self, Owned},
    redis::Server,
};

/// How long a rival may take to attach.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);
/// With no new probe for this long, all are attached.
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
    fn package(self) -> &'static str {
        match self {
            Self::Funclatency => "libbpf-tools",
            Self::Bpftrace => "bpftrace",
        }
    }

    fn program(self) -> Option<PathBuf> {
        let name = match self {
            Self::Funclatency => "funclatency",
            Self::Bpftrace => "bpftrace",
        };
        // Debian has it where only root looks.
        which::which(name)
            .or_else(|_| which::which(Path::new("/usr/sbin").join(name)))
            .ok()
    }

    fn command(self, server: &Server, target: &Target) -> Result<Command> {
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

    /// The number of calls in what it printed at its end.
    fn calls(self, output: &str) -> f64 {
        match self {
            Self::Funclatency => output.lines().filter_map(funclatency_count).sum(),
            Self::Bpftrace => output.lines().filter_map(bpftrace_count).sum(),
        }
    }
}

/// Installs the tools that are missing.
pub fn provide() -> Result<()> {
    let missing: Vec<String> = [Rival::Funclatency, Rival::Bpftrace]
        .into_iter()
        .filter(|rival| rival.program().is_none())
        .map(|rival| rival.package().to_owned())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    debian::installable()
        .with_context(|| format!("install these to compare with: {}", missing.join(", ")))?;
    debian::install(&missing)
}

/// A rival at work.
pub struct Watching {
    rival: Rival,
    process: Owned,
    output: NamedTempFile,
}

impl Watching {
    /// Attaches to the server.
    pub fn start(rival: Rival, server: &Server, target: &Target) -> Result<Self> {
        let output = NamedTempFile::new().context("cannot make a temporary file")?;
        let mut command = rival.command(server, target)?;
        let file = output.reopen().context("cannot open a temporary file")?;
        command.stdout(file.try_clone()?).stderr(file);
        let mut watching = Self {
            rival,
            process: Owned::start(&mut command)?,
            output,
        };
        watching.wait_until_attached()?;
        Ok(watching)
    }

    /// A tool says that it is attached before it is, or only into a buffer: its open probes tell.
    fn wait_until_attached(&mut self) -> Result<()> {
        let started = Instant::now();
        let (mut probes, mut since) = (0, started);
        while started.elapsed() < ATTACH_TIMEOUT {
            if let Some(status) = self.process.ended() {
                bail!(
                    "{:?} ended ({status}){}",
                    self.rival,
                    owned::log_text(self.output.path())
                );
            }
            let now = open_probes(self.process.pid());
            if now != probes {
                (probes, since) = (now, Instant::now());
            }
            if probes >= 2 && since.elapsed() >= SETTLED {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("{:?} attached nothing in {ATTACH_TIMEOUT:?}", self.rival)
    }

    /// Ends it as Ctrl-C does; how many calls it counted.
    pub fn finish(mut self) -> Result<f64> {
        self.process.stop_with(Signal::INT);
        let output = fs::read_to_string(self.output.path())
            .with_context(|| format!("cannot read what {:?} printed", self.rival))?;
        let calls = self.rival.calls(&output);
        ensure!(calls > 0.0, "{:?} counted nothing:\n{output}", self.rival);
        Ok(calls)
    }
}

/// How many perf events a process has open.
fn open_probes(pid: u32) -> usize {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return 0;
    };
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .filter(|link| link.as_os_str() == "anon_inode:[perf_event]")
        .count()
}

/// Of a line such as `512 -> 1023 : 199534 |****|`.
fn funclatency_count(line: &str) -> Option<f64> {
    let (range, rest) = line.split_once(':')?;
    range.split_once("->")?;
    rest.split('|').next()?.trim().parse().ok()
}

/// Of a line such as `{"type": "hist", "data": {"@ns": [{"min": 512, "max": 1023, "count": 9}]}}`.
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
    fn the_calls_of_both_tools_are_read() {
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
