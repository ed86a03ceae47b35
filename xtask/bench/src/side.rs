//! The sides of the comparison: what watches the server while it is measured.
//!
//! The tools that one would use instead: `funclatency` of Debian's libbpf-tools, and bpftrace.
//!
//! Both attach to the entry and to the return of the eviction function of one process, and keep a
//! histogram of the time between the two.
//!
//! Two servers of one program under the same load at the same time, on one core. One of them is watched, and what it
//! takes more than the other is what watching costs: whatever else happens on the machine affects both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::process;
use evictscope_testkit::process::Owned;
use evictscope_testkit::redis::PrivateBuild;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::threads::Cores;
use object::{Object as _, ObjectSymbol as _};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Bare,
    /// evictscope, in a probe mode.
    Evictscope(&'static str),
    Rival(Rival),
}

impl Side {
    /// All of them. The others are compared with the first.
    pub const ALL: [Self; 6] = [
        Self::Bare,
        Self::Evictscope("evicting-only"),
        Self::Evictscope(EVERY_CALL),
        Self::Evictscope(AUTO),
        Self::FUNCLATENCY,
        Self::Rival(BPFTRACE),
    ];
    /// The rival that all sides are compared with.
    pub const FUNCLATENCY: Self = Self::Rival(FUNCLATENCY);

    pub fn name(self) -> String {
        match self {
            Self::Bare => "bare".to_owned(),
            Self::Evictscope(mode) => format!("evictscope {mode}"),
            Self::Rival(rival) => rival.0.to_owned(),
        }
    }

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
    Nobody,
    /// The agent.
    Evictscope {
        agent: Agent,
        mode: &'static str,
        /// Since when it has been watching.
        since: Instant,
    },
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
        ensure!(mode == AUTO || in_mode? == 1.0, "evictscope is not in the probe mode {mode} it was started in");
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
            cost_ns: (since.elapsed() < WINDOW).then_some(ratio * WINDOW.as_nanos() as f64 / commands),
        })
    }
}

/// All probes are attached if there was no new one for this long.
const SETTLED: Duration = Duration::from_millis(500);

/// The program, and the package that brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival(&'static str, &'static str);

const FUNCLATENCY: Rival = Rival("funclatency", "libbpf-tools");
const BPFTRACE: Rival = Rival("bpftrace", "bpftrace");

impl Rival {
    fn program(self) -> Option<PathBuf> {
        // Debian installs it where only root looks.
        let found = which::which(self.0);
        (found.or_else(|_| which::which(Path::new("/usr/sbin").join(self.0)))).ok()
    }

    fn command(self, server: &Redis, target: &Target) -> Result<Command> {
        let program = self.program();
        let program = program.with_context(|| format!("there is no {}: install {}", self.0, self.1))?;
        let function = target.function;
        let mut command = Command::new(program);
        command.args(["-p", &server.pid().to_string()]);
        if self == FUNCLATENCY {
            command.arg(format!(":{function}"));
        } else {
            let place = format!("{}:{function}", target.watched.path().display());
            command.arg("-e").arg(format!(
                "uprobe:{place} {{ @start[tid] = nsecs; }} \
                 uretprobe:{place} /@start[tid]/ \
                 {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
            ));
        }
        Ok(command)
    }

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

/// Returns the packages of the tools that are missing.
pub fn missing_packages() -> Vec<String> {
    let rivals = [FUNCLATENCY, BPFTRACE].into_iter();
    let missing = rivals.filter(|rival| rival.program().is_none());
    missing.map(|rival| rival.1.to_owned()).collect()
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

/// How long the load runs before it is measured, and how long it is measured.
const BEFORE: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(6);

/// A state of the servers.
pub struct Condition {
    /// Its name in the tables.
    pub name: &'static str,
    /// The limit of each.
    pub maxmemory: &'static str,
    /// The load writes random keys out of this many.
    pub keys: u32,
    /// Whether about every command must evict.
    pub evicts: bool,
}

pub const CONDITIONS: [Condition; 2] = [
    // All the keys take a fiftieth of the limit.
    Condition { name: "healthy", maxmemory: "1gb", keys: 100_000, evicts: false },
    // The limit is reached with about a tenth of the keys: nine of ten writes make a new key.
    Condition { name: "evicting", maxmemory: "64mb", keys: 3_000_000, evicts: true },
];

pub struct Twins {
    pub watched: Redis,
    other: Redis,
    keys: u32,
}

pub struct Took {
    /// CPU time of the main thread for a command of the watched server, nanoseconds.
    pub watched_ns: f64,
    /// The same for the other.
    pub other_ns: f64,
    /// The commands of the watched server, including those before and after the measurement.
    pub commands: f64,
}

impl Twins {
    pub fn start(target: &Target, condition: &Condition, cores: Option<&Cores>) -> Result<Self> {
        let options = ["--maxmemory", condition.maxmemory];
        let start = || {
            anyhow::Ok(Self {
                watched: target.watched.start(&options)?,
                other: Redis::start_program(Command::new(&target.program), &options)?,
                keys: condition.keys,
            })
        };
        let twins = match cores {
            Some(cores) => cores.on_the_servers(start)?,
            None => start()?,
        };
        for server in [&twins.watched, &twins.other] {
            server.set_keys(condition.keys, condition.keys.max(1_000_000))?;
        }
        Ok(twins)
    }

    /// Puts both under load for some seconds.
    pub fn load(&self) -> Result<Took> {
        let begun = Work::of(&self.watched)?;
        let loads = [self.watched.load_of_sets(self.keys)?, self.other.load_of_sets(self.keys)?];
        thread::sleep(BEFORE);
        let watched = Work::of(&self.watched)?;
        let other = Work::of(&self.other)?;
        thread::sleep(MEASURED);
        let watched_ns = Work::of(&self.watched)?.command_ns_since(&watched);
        let other_ns = Work::of(&self.other)?.command_ns_since(&other);
        for load in loads {
            // Then it has been running all the time.
            load.must_be_alive()?;
        }
        let commands = Work::of(&self.watched)?.commands - begun.commands;
        Ok(Took { watched_ns, other_ns, commands })
    }
}

/// What a server has done so far.
struct Work {
    commands: f64,
    /// CPU time of its main thread, nanoseconds.
    cpu_ns: f64,
}

impl Work {
    fn of(server: &Redis) -> Result<Self> {
        Ok(Self {
            commands: server.info("total_commands_processed")?,
            cpu_ns: server.main_thread_times()?.running.as_nanos() as f64,
        })
    }

    fn command_ns_since(&self, earlier: &Self) -> f64 {
        (self.cpu_ns - earlier.cpu_ns) / (self.commands - earlier.commands)
    }
}

/// The names of the eviction function: since Redis 6.2, and before.
const NAMES: [&str; 2] = ["performEvictions", "freeMemoryIfNeeded"];

pub struct Target {
    pub program: PathBuf,
    /// A copy of it for the server that is watched. The agent is told to watch no other.
    pub watched: PrivateBuild,
    /// The name of its eviction function.
    pub function: &'static str,
    /// Its version, as it prints it.
    pub version: String,
}

impl Target {
    /// Examines a program, by default the `redis-server` on `PATH`.
    pub fn find(program: Option<&Path>) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => which::which("redis-server").context("no redis-server on PATH")?,
        };
        let data = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
        let function = eviction_function(&data).with_context(|| program.display().to_string())?;
        let version = process::answer_of(Command::new(&program).arg("--version"))?;
        Ok(Self { watched: PrivateBuild::of(&program)?, program, version: version.trim().to_owned(), function })
    }
}

fn eviction_function(data: &[u8]) -> Result<&'static str> {
    let file = object::File::parse(data).context("this is not an executable")?;
    let is_there = |name: &&str| {
        let mut symbols = file.symbols().chain(file.dynamic_symbols());
        symbols.any(|symbol| symbol.name() == Ok(*name))
    };
    let found = NAMES.into_iter().find(is_there);
    found
        .with_context(|| format!("it names no function {}: the rivals find functions by name only", NAMES.join(" or ")))
}
