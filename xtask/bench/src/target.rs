//! The program of the servers that are measured, and what the rivals must know about it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{own_build::OwnBuild, process};
use object::{Object as _, ObjectSymbol as _};

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
