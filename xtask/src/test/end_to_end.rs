//! The agent's tests that need root and BPF, each in a process of its own and several at once.

use std::{
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use cargo_metadata::{Artifact, Message, TargetKind};
use evictscope_testkit::{agent::AGENT, process, text::seconds, workspace};

use super::{report::Outcome, tests};

/// The tests, as they were built.
#[derive(Clone)]
pub struct EndToEnd {
    program: PathBuf,
    /// The agent's unit tests.
    units: PathBuf,
    agent: PathBuf,
}

impl EndToEnd {
    /// Finds what the build of the tests has left: their program, and the agent that was built with it.
    pub fn built() -> Result<Self> {
        let mut cargo = tests();
        cargo
            .args(["--no-run", "--message-format=json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = cargo.spawn().context("cannot start cargo")?;
        let output = child.stdout.take().context("cargo has no output")?;
        let (mut program, mut units, mut agent) = (None, None, None);
        for message in Message::parse_stream(BufReader::new(output)) {
            if let Message::CompilerArtifact(Artifact {
                target,
                executable: Some(path),
                profile,
                ..
            }) = message?
            {
                match target.name.as_str() {
                    "e2e" => program = Some(path.into_std_path_buf()),
                    "evictscope" if !target.is_kind(TargetKind::Bin) => {}
                    "evictscope" if profile.test => units = Some(path.into_std_path_buf()),
                    "evictscope" => agent = Some(path.into_std_path_buf()),
                    _ => {}
                }
            }
        }
        ensure!(child.wait()?.success(), "the tests do not compile");
        Ok(Self {
            program: program.context("cargo names no program of the end-to-end tests")?,
            units: units.context("cargo names no program of the agent's unit tests")?,
            agent: agent.context("cargo names no agent")?,
        })
    }

    /// Returns why they cannot run here, if they cannot.
    pub fn missing(&self) -> Result<Option<String>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Some("they need root".to_owned()));
        }
        // The agent knows by its own `check`.
        let check = Command::new(&self.agent).arg("check").output()?;
        let said = String::from_utf8_lossy(&check.stdout);
        Ok((!check.status.success()).then(|| {
            format!(
                "`evictscope check` says that it cannot run here:\n{}",
                said.trim_end()
            )
        }))
    }

    /// Runs those of real servers that are in one module, `core` or `long`.
    pub fn of_servers(&self, module: &str) -> Result<Outcome> {
        let all = Which {
            program: &self.program,
            option: "--include-ignored",
            module: &format!("{module}::"),
            for_each_core: if module == "core" { 2 } else { 1 },
        };
        self.run(&all)
    }

    /// Runs the unit tests that load the programs: a plain `cargo test` ignores them.
    pub fn of_programs(&self) -> Result<Outcome> {
        self.run(&Which {
            program: &self.units,
            option: "--ignored",
            module: "",
            for_each_core: 2,
        })
    }

    fn run(&self, which: &Which<'_>) -> Result<Outcome> {
        if let Some(reason) = self.missing()? {
            return Ok(Outcome::Skipped(reason));
        }
        let list = ["--list", which.option, "--format", "terse"];
        let list = process::answer_of(self.command(which).args(list))?;
        let name = |line: &str| {
            let name = line.strip_suffix(": test")?;
            let is_wanted = name.starts_with(which.module);
            is_wanted.then(|| name.to_owned())
        };
        let names: Vec<String> = list.lines().filter_map(name).collect();
        ensure!(!names.is_empty(), "there is no such test");
        let waiting = Mutex::new(names.into_iter());
        let next = || waiting.lock().ok().and_then(|mut names| names.next());
        let cores = thread::available_parallelism()?.get();
        let ended = thread::scope(|scope| {
            let work = || {
                let runs = std::iter::from_fn(next).map(|name| self.run_one(which, name));
                runs.collect::<Result<Vec<_>>>()
            };
            let workers: Vec<_> = (0..which.for_each_core * cores)
                .map(|_| scope.spawn(work))
                .collect();
            let workers = workers.into_iter().map(|worker| {
                let ended = worker.join();
                ended.map_err(|_| anyhow!("a thread panicked"))?
            });
            workers.collect::<Result<Vec<_>>>()
        })?;
        let mut ended: Vec<Ended> = ended.into_iter().flatten().collect();
        ended.sort_by(|one, other| one.name.cmp(&other.name));
        let failed: Vec<_> = ended
            .iter()
            .filter_map(|test| test.failed.clone())
            .collect();
        if !failed.is_empty() {
            return Ok(Outcome::Failed(failed.join("\n\n")));
        }
        let lines = ended.iter().map(Ended::line);
        Ok(Outcome::Said(lines.collect::<Vec<_>>().join("\n")))
    }

    fn command(&self, which: &Which<'_>) -> Command {
        let mut command = Command::new(which.program);
        command
            .current_dir(workspace::root().join("agent"))
            .env(AGENT, &self.agent);
        command
    }

    fn run_one(&self, which: &Which<'_>, name: String) -> Result<Ended> {
        let begun = Instant::now();
        let mut command = self.command(which);
        command.args([which.option, "--exact", "--nocapture", &name]);
        let output = command.output().context("cannot run an end-to-end test")?;
        let failed = (!output.status.success()).then(|| {
            let said = [output.stdout.as_slice(), &output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            format!("$ {}\n{}", process::display(&command), said.trim_end())
        });
        // What a test that is skipped says goes there.
        let said = String::from_utf8_lossy(&output.stderr);
        let skipped = said.lines().find(|line| line.starts_with("skipped: "));
        Ok(Ended {
            name,
            took: begun.elapsed(),
            failed,
            skipped: skipped.map(str::to_owned),
        })
    }
}

/// Which tests to run: those in a program whose names begin so.
struct Which<'a> {
    program: &'a Path,
    option: &'static str,
    module: &'a str,
    /// How many run at once for each core.
    for_each_core: usize,
}

/// A test that has ended.
struct Ended {
    name: String,
    took: Duration,
    /// What it said, where it failed.
    failed: Option<String>,
    skipped: Option<String>,
}

impl Ended {
    fn line(&self) -> String {
        let skipped = self.skipped.as_deref().unwrap_or_default();
        format!("  {:>8}  {}  {skipped}", seconds(self.took), self.name)
    }
}
