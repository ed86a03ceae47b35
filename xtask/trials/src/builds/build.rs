//! A build, what the agent plans for it, and whether what it plans to read is right: gdb evaluates that at the sites,
//! beside the server's own values.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::process::{self, Owned};
use evictscope_testkit::redis::{PrivateBuild, Redis};
use evictscope_testkit::servers;
use evictscope_testkit::target::Target;
use evictscope_testkit::wait::HANG;
use serde_json::Value;

use crate::directory;
use crate::table::Row;

/// The limit of the servers: some seconds of load exceed it.
pub const LIMIT: &str = "16mb";

pub const STRIPPED: &str = ", stripped";

pub struct Build {
    pub name: String,
    pub program: PathBuf,
    pub root: Option<PathBuf>,
    pub target: Target,
}

impl Build {
    pub fn and_stripped(self) -> Result<Vec<Self>> {
        let sections =
            process::answer_of(Command::new("readelf").args(["--wide", "--section-headers"]).arg(&self.program))?;
        if !sections.contains(" .symtab ") {
            return Ok(vec![self]);
        }
        let name = format!("{}{STRIPPED}", self.name);
        let program = directory()?.join(name.replace('/', "-"));
        servers::strip(&self.program, &program)?;
        let stripped = Self { name, program, root: self.root.clone(), target: self.target };
        Ok(vec![self, stripped])
    }

    /// Returns a copy of the executable, which no other agent looks for.
    pub fn copied(&self) -> Result<PrivateBuild> {
        PrivateBuild::in_root(&self.program, self.root.as_deref())
    }
}

const HITS: usize = 25;

/// Options of the server under gdb. The buffer of its append-only file is overhead, so this is not always 0, and no
/// background thread allocates.
const APPENDING: [&str; 8] =
    ["--maxmemory", LIMIT, "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];

pub struct Plan(Value);

impl Plan {
    pub fn of(program: &Path, agent: &Path) -> Result<Self> {
        let mut command = Command::new(agent);
        let output = command.args(["inspect", "--json"]).arg(program).output().context("cannot start the agent")?;
        let shown = process::display(&command);
        // It is 1 if something was not found.
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(matches!(output.status.code(), Some(0 | 1)), "`{shown}` failed ({}): {}", output.status, why.trim());
        Ok(Self(serde_json::from_slice(&output.stdout).with_context(|| format!("`{shown}` printed no JSON"))?))
    }

    pub fn not_found(&self) -> Vec<(&str, &str)> {
        self.list("not_found").filter_map(|item| item["item"].as_str().zip(item["why"].as_str())).collect()
    }

    /// Adds which server it is for, what was not found, by which methods the rest was, and the time.
    pub fn report(&self, row: &mut Row) {
        let server = self.0["product"].as_str().zip(self.0["version"].as_str());
        row.fact("server", server.map_or("-".to_owned(), |(product, version)| format!("{product} {version}")));
        let missing = self.not_found().iter().map(|(item, _)| *item).collect::<Vec<_>>().join(", ");
        row.fact("plan", if missing.is_empty() { "complete".to_owned() } else { format!("without {missing}") });
        let quantities = self.eviction_call()["inner"]["quantities"].as_array();
        let found = quantities.into_iter().flatten().chain(self.list("members"));
        let methods: BTreeSet<_> = found.filter_map(|item| item["method"].as_str()).collect();
        row.fact("found by", Vec::from_iter(methods).join(", "));
        row.fact("planned in", format!("{:.0} ms", self.0["planning_seconds"].as_f64().unwrap_or(f64::NAN) * 1e3));
    }

    pub fn is_empty(&self) -> bool {
        self.list("functions").chain(self.list("members")).next().is_none()
    }

    pub fn eviction_call(&self) -> &Value {
        self.list("functions").find(|function| function["kind"] == "eviction_call").unwrap_or(&Value::Null)
    }

    /// Returns how many done sites of the eviction call end only the calls that leave a jump one way, and whether the
    /// goal probe ends some calls.
    pub fn exits(&self) -> (usize, bool) {
        let call = self.eviction_call();
        let exits = call["exits"].as_array().into_iter().flatten();
        let (at_goal, elsewhere): (Vec<_>, Vec<_>) =
            exits.partition(|exit| exit["address"] == call["inner"]["address"]);
        (elsewhere.iter().filter(|exit| !exit["way"].is_null()).count(), !at_goal.is_empty())
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.0[name].as_array().into_iter().flatten()
    }

    /// Runs a build at its limit under gdb, and adds what was found. One for another processor runs in an emulator.
    pub fn compare_sites(&self, build: &Build, row: &mut Row) -> Result<()> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let [script, plan] = ["sites.py", "plan.json"].map(|name| directory.path().join(name));
        fs::write(&script, include_str!("sites.py"))?;
        fs::write(&plan, self.0.to_string())?;
        let evaluate = |target: &[String]| {
            // gdb waits forever if no hit comes.
            let mut command = Command::new("timeout");
            command.args([&HANG.as_secs().to_string(), "gdb-multiarch", "--batch", "--nx"]);
            command.args(["-iex", "set debuginfod enabled off", "-iex", "set auto-load off"]).args(target);
            process::answer_of(command.arg("-x").arg(&script).env("PLAN", &plan).env("HITS", HITS.to_string()))
        };
        let said = match build.target {
            Target::X86_64 => {
                let own = build.copied()?;
                let redis = own.start(&APPENDING)?;
                redis.write_keys(40_000)?;
                let _load = loads(&redis)?;
                evaluate(&["-p".to_owned(), redis.pid().to_string(), own.path().display().to_string()])
            }
            Target::Aarch64 => {
                let port = free_port()?;
                let root = build.root.as_deref().context("it has no root")?.display();
                let mut emulator = Command::new("qemu-aarch64");
                // That processor signs no return addresses, of which gdb knows nothing here.
                emulator.args(["-cpu", "cortex-a72", "-0", "redis-server", "-L", &root.to_string()]);
                emulator.args(["-g", &port.to_string()]).arg(&build.program);
                let commands = ["-iex", &format!("set sysroot {root}"), "-ex", &format!("target remote :{port}")];
                let target = [commands.map(str::to_owned).to_vec(), vec![build.program.display().to_string()]].concat();
                thread::scope(|scope| {
                    // The emulator waits for gdb before it runs anything.
                    let gdb = scope.spawn(|| evaluate(&target));
                    let redis = Redis::start_program(emulator, &APPENDING)?;
                    let _load = loads(&redis)?;
                    gdb.join().map_err(|_| anyhow!("a thread panicked"))?
                })
            }
        }?;
        let answer = said.lines().find_map(|line| line.strip_prefix("sites: "));
        let answer = answer.with_context(|| format!("gdb evaluated nothing:\n{said}"))?;
        row.check("under gdb", answer.starts_with("0 wrong, "), answer);
        Ok(())
    }
}

/// Has a server evict, and expire keys.
fn loads(redis: &Redis) -> Result<[Owned; 2]> {
    Ok([
        redis.load("-t set -d 500 -r 10000000 -P 4 -n 10000000")?,
        redis.load("-c 1 -r 100000 -n 10000000 set expiring:__rand_int__ value px 300")?,
    ])
}
