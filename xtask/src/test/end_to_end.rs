//! The agent's tests that need root and BPF, each in a process of its own and several at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{slice, thread};

use anyhow::{Context as _, Result, anyhow, ensure};
use evictscope_testkit::agent::AGENT;
use evictscope_testkit::text::seconds;
use evictscope_testkit::{process, workspace};

use super::{Outcome, tests};

/// The options that build the end-to-end tests and no others.
pub const ALONE: [&str; 2] = ["--test", "e2e"];

#[derive(Clone)]
pub struct EndToEnd {
    program: PathBuf,
    /// The unit tests, unless the end-to-end tests were built alone.
    units: Vec<PathBuf>,
    agent: PathBuf,
}

impl EndToEnd {
    /// Builds the tests with these options, and finds their programs, which cargo names as it would run them.
    pub fn build(options: &[&str]) -> Result<Self> {
        let said = process::succeed_as("cargo test --no-run", tests().args(options).arg("--no-run"))?;
        let (mut program, mut units) = (None, Vec::new());
        for line in said.lines().filter_map(|line| line.trim().strip_prefix("Executable ")) {
            let (source, path) = line.split_once(" (").context("cargo names no program")?;
            let path = workspace::root().join(path.trim_end_matches(')'));
            if source.starts_with("tests/e2e") {
                program = Some(path);
            } else if source.starts_with("unittests") {
                units.push(path);
            }
        }
        let program = program.context("cargo names no program of the end-to-end tests")?;
        Ok(Self { program, units, agent: workspace::agent_of_tests()? })
    }

    /// Runs the tests of what the project is for, on real servers.
    pub fn core(&self) -> Result<Outcome> {
        self.run(slice::from_ref(&self.program), "--include-ignored", "core::", 2)
    }

    /// Runs the other tests on real servers, with the release build: beside so much else, an unoptimized agent would
    /// plan for seconds.
    pub fn long(&self) -> Result<Outcome> {
        let agent = workspace::agent_binary()?;
        Self { agent, ..self.clone() }.run(slice::from_ref(&self.program), "--include-ignored", "long::", 1)
    }

    /// Runs the unit tests that need root: a plain `cargo test` ignores them.
    pub fn of_programs(&self) -> Result<Outcome> {
        self.run(&self.units, "--ignored", "", 2)
    }

    /// Runs the tests in some programs whose names begin with `module`, `for_each_core` at once for each core.
    fn run(&self, programs: &[PathBuf], option: &str, module: &str, for_each_core: usize) -> Result<Outcome> {
        if let Some(reason) = cannot_attach(&self.agent)? {
            return Ok(Outcome::Skipped(reason));
        }
        let mut tests = Vec::new();
        for program in programs {
            let list = process::answer_of(self.command(program).args(["--list", option, "--format", "terse"]))?;
            let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(names.filter(|name| name.starts_with(module)).map(|name| (program, name.to_owned())));
        }
        ensure!(!tests.is_empty(), "there is no such test");
        let waiting = Mutex::new(tests.into_iter());
        let next = || waiting.lock().ok().and_then(|mut tests| tests.next());
        let cores = thread::available_parallelism()?.get();
        let ended = thread::scope(|scope| {
            let work = || {
                let runs = std::iter::from_fn(next).map(|(program, name)| self.run_one(program, option, name));
                runs.collect::<Result<Vec<_>>>()
            };
            let workers: Vec<_> = (0..for_each_core * cores).map(|_| scope.spawn(work)).collect();
            let workers = workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a thread panicked"))?);
            workers.collect::<Result<Vec<_>>>()
        })?;
        let mut ended: Vec<Ended> = ended.into_iter().flatten().collect();
        ended.sort_by(|one, other| one.name.cmp(&other.name));
        let failed: Vec<_> = ended.iter().filter_map(|test| test.failed.clone()).collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
        let line = |test: &Ended| format!("  {:>8}  {}  {}", seconds(test.took), test.name, test.skipped);
        Ok(Outcome::Passed(ended.iter().map(line).collect::<Vec<_>>().join("\n")))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(workspace::root().join("agent")).env(AGENT, &self.agent);
        command
    }

    fn run_one(&self, program: &Path, option: &str, name: String) -> Result<Ended> {
        let begun = Instant::now();
        let mut command = self.command(program);
        command.args([option, "--exact", "--nocapture", &name]);
        let output = command.output().context("cannot run an end-to-end test")?;
        let failed = (!output.status.success()).then(|| {
            let said = [output.stdout.as_slice(), &output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            format!("$ {}\n{}", process::display(&command), said.trim_end())
        });
        // A test that is skipped says so there.
        let said = String::from_utf8_lossy(&output.stderr);
        let skipped = said.lines().find(|line| line.starts_with("skipped: ")).unwrap_or_default().to_owned();
        Ok(Ended { name, took: begun.elapsed(), failed, skipped })
    }
}

/// Returns why this agent cannot attach to a server here, if it cannot.
pub fn cannot_attach(agent: &Path) -> Result<Option<String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("it needs root".to_owned()));
    }
    // The agent's own `check` finds out.
    let check = Command::new(agent).arg("check").output()?;
    let said = String::from_utf8_lossy(&check.stdout);
    let failed = || format!("`evictscope check` says why:\n{}", said.trim_end());
    Ok((!check.status.success()).then(failed))
}

struct Ended {
    name: String,
    took: Duration,
    failed: Option<String>,
    skipped: String,
}
