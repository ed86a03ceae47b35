//! The report of `cargo xtask test`.

use std::{
    process::ExitCode,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use evictscope_testkit::{skip::in_ci, text::seconds};

/// The outcome of a step.
pub enum Outcome {
    /// It passed.
    Passed,
    /// It passed, with something worth knowing.
    Said(String),
    /// It failed, with what it wrote.
    Failed(String),
    /// It was skipped, for this reason.
    Skipped(String),
}

impl Outcome {
    /// Goes on with `next` if this part of a step passed.
    pub fn then(self, next: impl FnOnce() -> Result<Self>) -> Result<Self> {
        let said = match self {
            Self::Passed => return next(),
            Self::Said(said) => said,
            other => return Ok(other),
        };
        Ok(match next()? {
            Self::Said(more) => Self::Said(format!("{said}\n{more}")),
            Self::Passed => Self::Said(said),
            other => other,
        })
    }
}

/// The steps so far: name, outcome in a word, time.
#[derive(Default)]
pub struct Report {
    steps: Vec<(&'static str, &'static str, Duration)>,
}

/// A step that runs beside others.
pub struct Beside {
    name: &'static str,
    thread: JoinHandle<(Result<Outcome>, Duration)>,
}

impl Report {
    /// Runs a step.
    pub fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<Outcome>) {
        println!("== {name}");
        let started = Instant::now();
        let outcome = run();
        self.close_step(name, outcome, started.elapsed());
    }

    /// Begins a step beside those that follow. It must not print anything itself, but return what is to be printed.
    pub fn begin(
        &self,
        name: &'static str,
        run: impl FnOnce() -> Result<Outcome> + Send + 'static,
    ) -> Beside {
        println!("== {name}: begins, and runs beside the next steps");
        let thread = thread::spawn(move || {
            let started = Instant::now();
            (run(), started.elapsed())
        });
        Beside { name, thread }
    }

    /// Waits for the end of a step that runs beside others.
    pub fn end(&mut self, beside: Beside) {
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
        let (word, said) = match outcome {
            Outcome::Passed => ("passed", String::new()),
            Outcome::Said(said) => ("passed", said),
            Outcome::Failed(said) => ("failed", said),
            Outcome::Skipped(said) => ("skipped", said),
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
        println!(
            "\n{} passed, {failed} failed, {} skipped",
            count("passed"),
            count("skipped")
        );
        ExitCode::from(u8::from(failed > 0))
    }
}
