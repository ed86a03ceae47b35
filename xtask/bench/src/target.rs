//! The server that is measured: what the rivals must know about its program, its states, and one measurement.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;
use object::{Object as _, ObjectSymbol as _};

/// The names of the eviction function: since Redis 6.2, and before.
const NAMES: [&str; 2] = ["performEvictions", "freeMemoryIfNeeded"];
/// The names by which the agent knows a server, where `--process-match` does not say otherwise.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// A state of the server.
pub struct Condition {
    /// Its name in the tables.
    pub name: &'static str,
    /// The server's limit.
    pub maxmemory: &'static str,
    /// The keys of the load, which writes random ones of them.
    pub keys: u32,
    /// Requests of each measurement.
    pub requests: u32,
    /// Whether about every command must evict.
    pub evicts: bool,
}

/// All of them.
pub const CONDITIONS: [Condition; 2] = [
    // All the keys take a fiftieth of the limit.
    Condition {
        name: "healthy",
        maxmemory: "1gb",
        keys: 100_000,
        requests: 1_000_000,
        evicts: false,
    },
    // The limit is reached with about a tenth of the keys: nine of ten writes make a new one.
    Condition {
        name: "evicting",
        maxmemory: "64mb",
        keys: 3_000_000,
        requests: 1_000_000,
        evicts: true,
    },
];

/// One measurement.
#[derive(Clone, Copy)]
pub struct Measurement {
    /// Commands a second, as the client saw it.
    pub rate: f64,
    /// CPU time of the server's main thread for one command, in nanoseconds.
    pub cpu: f64,
    /// The share of the commands that made an evicting call, where these were counted.
    pub evicting_share: Option<f64>,
    /// What evictscope says that its probes cost, nanoseconds of a command.
    pub said: Option<f64>,
}

/// A server program.
pub struct Target {
    /// How to call it. Debian's `redis-server` is a link to a program that does something else under its own
    /// name.
    pub program: PathBuf,
    /// The executable itself.
    pub executable: PathBuf,
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
        let name = program.file_name().unwrap_or_default();
        ensure!(
            SERVERS.iter().any(|server| name == *server),
            "evictscope takes {} for no server: copy it to one of the names {}",
            program.display(),
            SERVERS.join(", ")
        );
        let executable = program
            .canonicalize()
            .with_context(|| format!("there is no {}", program.display()))?;
        let data = fs::read(&executable)
            .with_context(|| format!("cannot read {}", executable.display()))?;
        let function = eviction_function(&data).with_context(|| program.display().to_string())?;
        let version = process::answer_of(Command::new(&program).arg("--version"))?;
        Ok(Self {
            version: version.trim().to_owned(),
            program,
            executable,
            function,
        })
    }
}

/// Returns the name of the eviction function.
fn eviction_function(data: &[u8]) -> Result<&'static str> {
    let file = object::File::parse(data).context("this is no executable")?;
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
