//! Two servers of one program under the same load at the same time, on one core. One of them is watched, and what it takes more
//! than the other is what watching costs: whatever else happens on the machine affects both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result};
use evictscope_testkit::cores::Cores;
use evictscope_testkit::own_build::OwnBuild;
use evictscope_testkit::process;
use evictscope_testkit::redis::Redis;
use object::{Object as _, ObjectSymbol as _};

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
    Condition {
        name: "healthy",
        maxmemory: "1gb",
        keys: 100_000,
        evicts: false,
    },
    // The limit is reached with about a tenth of the keys: nine of ten writes make a new key.
    Condition {
        name: "evicting",
        maxmemory: "64mb",
        keys: 3_000_000,
        evicts: true,
    },
];

/// Two servers.
pub struct Twins {
    pub watched: Redis,
    other: Redis,
    keys: u32,
}

/// What a load took.
pub struct Took {
    /// CPU time of the main thread for a command of the watched server, nanoseconds.
    pub watched_ns: f64,
    /// The same for the other.
    pub other_ns: f64,
    /// The commands of the watched server, including those before and after the measurement.
    pub commands: f64,
}

impl Twins {
    /// Starts them, and writes enough keys that all measurements find the same state.
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
        let loads = [
            self.watched.load_of_sets(self.keys)?,
            self.other.load_of_sets(self.keys)?,
        ];
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
        Ok(Took {
            watched_ns,
            other_ns,
            commands,
        })
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

/// A server program.
pub struct Target {
    /// The program itself.
    pub program: PathBuf,
    /// A copy of it for the server that is watched. The agent is told to watch no other.
    pub watched: OwnBuild,
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
        let data =
            fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
        let function = eviction_function(&data).with_context(|| program.display().to_string())?;
        let version = process::answer_of(Command::new(&program).arg("--version"))?;
        Ok(Self {
            watched: OwnBuild::of(&program)?,
            program,
            version: version.trim().to_owned(),
            function,
        })
    }
}

/// Returns the name of the eviction function.
fn eviction_function(data: &[u8]) -> Result<&'static str> {
    let file = object::File::parse(data).context("this is not an executable")?;
    let is_there = |name: &&str| {
        let mut symbols = file.symbols().chain(file.dynamic_symbols());
        symbols.any(|symbol| symbol.name() == Ok(*name))
    };
    let found = NAMES.into_iter().find(is_there);
    found.with_context(|| {
        format!(
            "it names no function {}: the rivals find functions by name only",
            NAMES.join(" or ")
        )
    })
}
