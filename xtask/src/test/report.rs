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
    /// It failed, with what it wrote, and passed when it was run once more.
    PassedAgain(String),
    /// It failed, with what it wrote.
    Failed(String),
    /// It was skipped, for this reason.
    Skipped(String),
}

/// Runs a step whose tests depend on what else this machine does, and once more where it fails. The report names the
/// steps that needed it: the cause may be the machine, or a defect that shows now and then.
pub fn twice_at_most(run: impl Fn() -> Result<Outcome>) -> Result<Outcome> {
    let first = match run() {
        Ok(Outcome::Failed(output)) => output,
        Err(error) => format!("{error:#}"),
        other => return other,
    };
    Ok(match run()? {
        Outcome::Passed | Outcome::Said(_) => Outcome::PassedAgain(first),
        Outcome::Failed(again) => Outcome::Failed(format!("{first}\n\nonce more:\n{again}")),
        other => other,
    })
}

/// Returns the outcome of a step of several parts, all of which run. It has the words of those that failed; where there
/// are none, of those that failed at first; where there are none of these either, of all.
pub fn together(parts: impl IntoIterator<Item = Result<Outcome>>) -> Outcome {
    let (mut failed, mut again, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        match part {
            Ok(Outcome::Passed) => {}
            Ok(Outcome::Said(output)) => said.push(output),
            Ok(Outcome::PassedAgain(output)) => again.push(output),
            Ok(Outcome::Failed(output) | Outcome::Skipped(output)) => failed.push(output),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    if !failed.is_empty() {
        Outcome::Failed(failed.join("\n\n"))
    } else if !again.is_empty() {
        Outcome::PassedAgain(again.join("\n\n"))
    } else {
        Outcome::Said(said.join("\n"))
    }
}

/// The steps so far: name, outcome in a word, time.
#[derive(Default)]
pub struct Report {
    steps: Vec<(&'static str, &'static str, Duration)>,
    at_second_try: Vec<&'static str>,
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

    /// Begins a step beside those that follow. It must not print anything itself, but returns what is to be printed.
    pub fn begin(&self, name: &'static str, run: fn() -> Result<Outcome>) -> Beside {
        println!("== {name}: begins, and goes on beside what follows");
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
        let word = match outcome {
            Outcome::Passed => "passed",
            Outcome::Said(output) => {
                println!("{output}");
                "passed"
            }
            Outcome::PassedAgain(output) => {
                println!("{output}\n   failed, and passed when it was run once more");
                self.at_second_try.push(name);
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

    /// Prints the table, and on the last line the counts, which CI reads.
    pub fn close(self) -> ExitCode {
        println!();
        for (name, word, elapsed) in &self.steps {
            println!("{name:<48} {word:<8} {:>10}", seconds(*elapsed));
        }
        for name in &self.at_second_try {
            println!("\nat the second try: {name}. See above why it failed at the first");
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::{Result, anyhow, bail};

    use super::{Outcome, together, twice_at_most};

    fn runs(outcomes: [fn() -> Result<Outcome>; 2]) -> (Result<Outcome>, usize) {
        let run = Cell::new(0);
        let outcome = twice_at_most(|| {
            let number = run.replace(run.get() + 1);
            outcomes
                .get(number)
                .map_or_else(|| bail!("a third run"), |run| run())
        });
        (outcome, run.get())
    }

    #[test]
    fn what_fails_runs_once_more() {
        let failed = || Ok(Outcome::Failed("why".to_owned()));
        let (outcome, count) = runs([failed, || Ok(Outcome::Passed)]);
        assert!(matches!(outcome, Ok(Outcome::PassedAgain(why)) if why == "why"));
        assert_eq!(count, 2);
        let (outcome, count) = runs([failed, failed]);
        assert!(matches!(outcome, Ok(Outcome::Failed(_))));
        assert_eq!(count, 2);
        let (outcome, _) = runs([|| bail!("no cargo"), || bail!("no cargo")]);
        assert!(outcome.is_err());
    }

    #[test]
    fn one_part_that_fails_fails_all() {
        let passed = || Ok(Outcome::Passed);
        let again = || Ok(Outcome::PassedAgain("late".to_owned()));
        let failed = || Ok(Outcome::Failed("why".to_owned()));
        let said = |text: &str| Ok(Outcome::Said(text.to_owned()));
        let all = together([said("one"), said("two")]);
        assert!(matches!(all, Outcome::Said(said) if said == "one\ntwo"));
        let all = together([passed(), again(), passed()]);
        assert!(matches!(all, Outcome::PassedAgain(why) if why == "late"));
        let all = together([failed(), again(), failed(), passed()]);
        assert!(matches!(all, Outcome::Failed(why) if why == "why\n\nwhy"));
        assert!(matches!(
            together([Err(anyhow!("no cargo"))]),
            Outcome::Failed(_)
        ));
    }

    #[test]
    fn what_does_not_fail_runs_once() {
        for outcome in [
            || Ok(Outcome::Passed),
            || Ok(Outcome::Skipped("no root".to_owned())),
        ] as [fn() -> Result<Outcome>; 2]
        {
            assert_eq!(runs([outcome, outcome]).1, 1);
        }
    }
}
