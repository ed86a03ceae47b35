//! `cargo xtask test`: everything that CI runs.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use evictscope_testkit::{process, skip::in_ci, text::seconds, workspace};

use crate::{
    dashboards, fuzz, package,
    setup::{self, Voice},
};

const EBPF: &str = "evictscope-ebpf";

/// Runs every step, whatever became of the others, and sums up.
pub fn run() -> Result<ExitCode> {
    let mut report = Report::default();
    report.step("set-up", || {
        setup::run(Voice::Full)?;
        Ok(Outcome::Passed)
    });
    report.step("format", || match missing_tool("fmt") {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => cargo(&["fmt", "--all", "--check"]),
    });
    report.step("clippy", || {
        clippy(&["--workspace", "--exclude", EBPF], &[])
    });
    // In a call of its own: in one build with std's, the panic handler of the BPF programs would be
    // the second. And on a host target, a program without std has to be told that nothing unwinds.
    report.step("clippy, BPF programs", || {
        clippy(
            &["--package", EBPF],
            &[("CARGO_PROFILE_DEV_PANIC", "abort")],
        )
    });
    report.step("documentation", || {
        documentation(&["--workspace", "--exclude", EBPF])
    });
    report.step("documentation, BPF programs", || {
        documentation(&["--package", EBPF])
    });
    report.step("release build", || cargo(&["build", "--release"]));
    report.step("tests", || {
        cargo(&["test", "--workspace", "--exclude", EBPF])
    });
    report.step("tests, BPF programs", || {
        cargo(&["test", "--package", EBPF, "--lib"])
    });
    // They take one core, and a minute. Beside them goes nothing that is judged by how long it takes,
    // but for the 5 s of a plan, of which those of 38 real builds took 0.12 s at most.
    let fuzzing = report.begin("fuzzing for a minute", fuzz);
    let packing = report.begin("package", pack);
    // Its bounds are those of the release build.
    report.step("tests of untrusted files", || {
        cargo(&[
            "test",
            "--release",
            "--package",
            "evictscope-plan",
            "--test",
            "untrusted",
        ])
    });
    let waiting = report.begin("end-to-end tests that wait", end_to_end_that_wait);
    report.step("end-to-end tests, untimed", || {
        end_to_end(|name| UNTIMED.contains(&name))
    });
    report.end(waiting);
    report.end(packing);
    report.end(fuzzing);
    report.step("dashboards and rules", || match dashboards::missing() {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => dashboards::check().map(|()| Outcome::Passed),
    });
    report.step("end-to-end tests", || {
        end_to_end(|name| !UNTIMED.contains(&name) && !WAITING.contains(&name))
    });
    report.step("from the package to the alert", sequence);
    Ok(report.close())
}

/// Fuzzes in a process of its own, which takes what the steps beside it leave.
fn fuzz() -> Result<Outcome> {
    if let Some(reason) = fuzz::missing() {
        return Ok(Outcome::Skipped(reason));
    }
    let mut command = Command::new("nice");
    command
        .arg(this_program()?)
        .args(["fuzz", "--seconds", "60"]);
    let said = process::answer_of(&mut command)?;
    Ok(Outcome::Said(said.trim_end().to_owned()))
}

/// Packs in a process of its own, and makes the root to install in.
fn pack() -> Result<Outcome> {
    if let Some(reason) = package::missing() {
        return Ok(Outcome::Skipped(reason));
    }
    let mut command = Command::new("nice");
    command.arg(this_program()?).arg("package");
    let said = process::answer_of(&mut command)?;
    package::provide_root()?;
    Ok(Outcome::Said(said.trim_end().to_owned()))
}

/// The end-to-end tests that compare counts and sums, which are the same on a busy machine.
const UNTIMED: [&str; 2] = ["e2e_builds", "e2e_forms"];

/// The end-to-end tests that mostly wait: for a changed file to be noticed, some seconds each time.
const WAITING: [&str; 1] = ["e2e_web"];

/// Runs those tests on real servers that are `wanted`, by their names, where this machine can load BPF
/// programs. They are ignored by a plain `cargo test`, which must pass on any machine.
fn end_to_end(wanted: impl Fn(&str) -> bool) -> Result<Outcome> {
    match cannot_run_end_to_end()? {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => outcome(&mut end_to_end_command(wanted)?),
    }
}

/// The same for those that wait, without a word until the end.
fn end_to_end_that_wait() -> Result<Outcome> {
    if let Some(reason) = cannot_run_end_to_end()? {
        return Ok(Outcome::Skipped(reason));
    }
    let mut command = end_to_end_command(|name| WAITING.contains(&name))?;
    let output = command.output().context("cannot run cargo")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Ok(ended(&process::display(&command), &said, output.status))
}

fn end_to_end_command(wanted: impl Fn(&str) -> bool) -> Result<Command> {
    let mut command = workspace::cargo();
    command.args(["test", "--release", "--package", "evictscope"]);
    for file in workspace::files_ending(&workspace::root().join("agent/tests"), "rs")? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if name.starts_with("e2e_") && wanted(&name) {
            command.args(["--test", &name]);
        }
    }
    command
        .arg("--")
        // One at a time: they compare rates and start servers that fill the machine.
        .args(["--include-ignored", "--test-threads=1"]);
    Ok(command)
}

/// Installs the package, has the lab make the cycle happen, compares what the installed agent says with the
/// lab's own record, has a Prometheus that scrapes it answer the installed dashboards and evaluate the
/// installed rules, and purges the package. In a process of its own, as the lab pins itself to a core.
fn sequence() -> Result<Outcome> {
    if let Some(reason) = cannot_run_end_to_end()? {
        return Ok(Outcome::Skipped(reason));
    }
    let Some(reason) = package::missing() else {
        return outcome(Command::new(this_program()?).args(["package", "--try-out", "--packed"]));
    };
    match outcome(Command::new(this_program()?).args(["lab", "burst", "--cycles", "1", "--agent"]))?
    {
        Outcome::Passed => Ok(Outcome::Skipped(format!(
            "the agent and the lab's record agree, but the package could not be tried out: {reason}"
        ))),
        other => Ok(other),
    }
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot tell which program this is")
}

/// Why no test on real servers can be made here, if none can.
fn cannot_run_end_to_end() -> Result<Option<String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("they need root".to_owned()));
    }
    cannot_run(&workspace::agent_binary()?)
}

/// Why the agent could not run on this machine, if it could not: its own `check` knows.
fn cannot_run(binary: &Path) -> Result<Option<String>> {
    let mut command = Command::new(binary);
    command.arg("check");
    let finished = process::run_with_progress("evictscope check", &mut command)
        .context("the release build left no agent to check this machine with")?;
    Ok((!finished.status.success()).then(|| {
        format!(
            "`evictscope check` says that it cannot run here:\n{}",
            finished.output.trim_end()
        )
    }))
}

fn clippy(packages: &[&str], environment: &[(&str, &str)]) -> Result<Outcome> {
    if let Some(reason) = missing_tool("clippy") {
        return Ok(Outcome::Skipped(reason));
    }
    let mut command = workspace::cargo();
    command
        .envs(environment.iter().copied())
        .arg("clippy")
        .args(packages)
        .args(["--all-targets", "--", "-Dwarnings"]);
    outcome(&mut command)
}

/// Why this subcommand of cargo cannot be run: not everyone who builds has it.
fn missing_tool(name: &str) -> Option<String> {
    process::answer_of(workspace::cargo().args([name, "--version"])).err()?;
    Some(format!(
        "there is no `cargo {name}`: get it with `rustup component add rustfmt clippy`, or from \
         Debian's packages rustfmt-web and rust-web-clippy"
    ))
}

fn documentation(packages: &[&str]) -> Result<Outcome> {
    let mut command = workspace::cargo();
    command
        .env("RUSTDOCFLAGS", "-Dwarnings")
        .args(["doc", "--no-deps"])
        .args(packages);
    outcome(&mut command)
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    outcome(workspace::cargo().args(arguments))
}

fn outcome(command: &mut Command) -> Result<Outcome> {
    let words = process::display(command);
    let label = words
        .split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ");
    let finished = process::run_with_progress(&label, command)?;
    Ok(ended(&words, &finished.output, finished.status))
}

/// What became of a command that ended so, with what it wrote.
fn ended(command: &str, output: &str, status: ExitStatus) -> Outcome {
    match status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!("$ {command}\n{}\n{status}", output.trim_end())),
    }
}

/// What became of a step.
enum Outcome {
    Passed,
    /// Passed, with something worth knowing.
    Said(String),
    /// With what it wrote.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// The steps so far: name, what became of them in a word, time.
#[derive(Default)]
struct Report {
    steps: Vec<(&'static str, &'static str, Duration)>,
}

/// A step that runs beside others.
struct Beside {
    name: &'static str,
    thread: JoinHandle<(Result<Outcome>, Duration)>,
}

impl Report {
    fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<Outcome>) {
        println!("== {name}");
        let started = Instant::now();
        let outcome = run();
        self.close_step(name, outcome, started.elapsed());
    }

    /// Begins a step beside those that follow, until its end. It must not print anything itself, and
    /// says what it has to say when it ends.
    fn begin(&self, name: &'static str, run: fn() -> Result<Outcome>) -> Beside {
        println!("== {name}: begins, and goes on beside what follows");
        let thread = thread::spawn(move || {
            let started = Instant::now();
            (run(), started.elapsed())
        });
        Beside { name, thread }
    }

    /// Waits for its end.
    fn end(&mut self, beside: Beside) {
        let name = beside.name;
        println!("== {name}: began above");
        let (outcome, elapsed) = beside
            .thread
            .join()
            .unwrap_or_else(|_| (Err(anyhow!("it panicked")), Duration::ZERO));
        self.close_step(name, outcome, elapsed);
    }

    fn close_step(&mut self, name: &'static str, outcome: Result<Outcome>, elapsed: Duration) {
        let outcome = match outcome {
            Ok(Outcome::Skipped(reason)) if in_ci() => Outcome::Failed(format!(
                "in CI nothing may be skipped, but this was: {reason}"
            )),
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let word = match outcome {
            Outcome::Passed => "passed",
            Outcome::Said(output) => {
                println!("{output}");
                "passed"
            }
            Outcome::Failed(output) => {
                println!("{output}");
                "failed"
            }
            Outcome::Skipped(reason) => {
                println!("{reason}");
                "skipped"
            }
        };
        println!("   {word} in {}", seconds(elapsed));
        self.steps.push((name, word, elapsed));
    }

    /// Prints the table, and last the counts alone on a line, as CI reads them.
    fn close(self) -> ExitCode {
        println!();
        for (name, word, elapsed) in &self.steps {
            println!("{name:<48} {word:<8} {:>10}", seconds(*elapsed));
        }
        let count = |word| self.steps.iter().filter(|step| step.1 == word).count();
        let failed = count("failed");
        println!(
            "\n{} passed, {failed} failed, {} skipped",
            count("passed"),
            count("skipped")
        );
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
