//! The sides of the comparison: what watches the server while it is measured.
//!
//! The tools that one would use instead: `funclatency` of Debian's libbpf-tools, and bpftrace.
//!
//! Both attach to the entry and to the return of the eviction function of one process, and keep a
//! histogram of the time between the two.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::owned::Owned;
use evictscope_testkit::redis::Redis;

use crate::twins::Target;

/// The longest that the agent takes to read what happened.
const SETTLE: Duration = Duration::from_millis(800);
/// The time over which the agent averages the share of probes in the main thread.
const WINDOW: Duration = Duration::from_secs(10);
/// The share of the commands whose call must have been counted. Each command makes one call. A few calls may
/// fall between attaching and the first command, or after the last reading.
const COUNTED: f64 = 0.99;

/// The probe mode in which all calls are counted.
const EVERY_CALL: &str = "every-call";
/// The probe mode that switches between the others, by what they cost.
const AUTO: &str = "auto";

/// A watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Nothing.
    Bare,
    /// evictscope, in a probe mode.
    Evictscope(&'static str),
    /// Another tool.
    Rival(Rival),
}

impl Side {
    /// All of them. The others are compared with the first.
    pub const ALL: [Self; 6] = [
        Self::Bare,
        Self::EVICTING_ONLY,
        Self::EVERY_CALL,
        Self::Evictscope(AUTO),
        Self::FUNCLATENCY,
        Self::Rival(Rival::Bpftrace),
    ];
    /// Only evicting calls are probed.
    pub const EVICTING_ONLY: Self = Self::Evictscope("evicting-only");
    /// All eviction calls are probed.
    pub const EVERY_CALL: Self = Self::Evictscope(EVERY_CALL);
    /// The rival that all sides are compared with.
    pub const FUNCLATENCY: Self = Self::Rival(Rival::Funclatency);

    /// Returns its name in the tables.
    pub fn name(self) -> String {
        match self {
            Self::Bare => "bare".to_owned(),
            Self::Evictscope(mode) => format!("evictscope {mode}"),
            Self::Rival(rival) => rival.name().to_owned(),
        }
    }

    /// Begins to watch the server.
    pub fn watch(self, agent: &Path, server: &Redis, target: &Target) -> Result<Watch> {
        Ok(match self {
            Self::Bare => Watch::Nobody,
            Self::Evictscope(mode) => {
                let watched = target.watched.only();
                let mut arguments = vec![&*watched, "--probe-mode", mode];
                if mode != AUTO {
                    // The mode is measured, not what the budget makes of it.
                    arguments.extend(["--overhead-budget", "100%"]);
                }
                let agent = Agent::of(agent, &arguments)?;
                agent.watches(server)?;
                let since = Instant::now();
                Watch::Evictscope { agent, mode, since }
            }
            Self::Rival(rival) => Watch::Rival(rival.watch(server, target)?),
        })
    }
}

/// A watcher at work, until it is finished or dropped.
pub enum Watch {
    /// Nothing.
    Nobody,
    /// The agent.
    Evictscope {
        /// The process.
        agent: Agent,
        /// Its probe mode.
        mode: &'static str,
        /// Since when it has been watching.
        since: Instant,
    },
    /// Another tool.
    Rival(Owned),
}

/// What a watcher says about the load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    /// The share of the commands that made an evicting call, if all of these were counted.
    pub evicting_share: Option<f64>,
    /// What its probes cost a command, nanoseconds, if its figure covers all the time.
    pub cost_ns: Option<f64>,
}

impl Watch {
    /// Ends it, and checks that it watched while the server answered `commands` commands.
    pub fn finish(self, server: &Redis, commands: f64) -> Result<Said> {
        let (agent, mode, since) = match self {
            Self::Nobody => return Ok(Said::default()),
            Self::Rival(process) => {
                process.must_be_alive()?;
                return Ok(Said::default());
            }
            Self::Evictscope { agent, mode, since } => (agent, mode, since),
        };
        thread::sleep(SETTLE);
        let reading = agent.reading(server)?;
        let in_mode = reading.sum("evictscope_probe_mode", &[("mode", mode)]);
        ensure!(
            mode == AUTO || in_mode? == 1.0,
            "evictscope is not in the probe mode {mode} it was started in"
        );
        let calls = |kind| reading.sum("evictscope_eviction_calls_total", &[("kind", kind)]);
        let evicting = calls("evicting")?;
        if mode == EVERY_CALL {
            let calls = evicting + calls("noop")?;
            ensure!(
                calls >= COUNTED * commands,
                "only {calls} calls were counted of {commands} commands: the probes were not \
                 attached all the time"
            );
        }
        let ratio = reading.sum("evictscope_overhead_ratio", &[])?;
        Ok(Said {
            evicting_share: (mode != AUTO).then_some(evicting / commands),
            cost_ns: (since.elapsed() < WINDOW)
                .then_some(ratio * WINDOW.as_nanos() as f64 / commands),
        })
    }
}

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
