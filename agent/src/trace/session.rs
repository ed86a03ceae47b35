//! The loop of a trace.

use std::io::{Write as _, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use evictscope_probes::{ProbeError, TraceCosts, TraceCounts, Traced, Tracer, Tracing};
use evictscope_telemetry::{HitCosts, OverheadBudget, nanoseconds};

use super::ending::Ending;
use super::pace::{Pace, TRIAL};
use super::report::{self, Clock, Second, Summary, duration, share};
use super::subject::Subject;
use crate::watch::{monotonic, unix_time};

/// How often the counts are read while the probes are on.
const TURN: Duration = Duration::from_millis(10);
/// How often a histogram is printed.
const SECOND: Duration = Duration::from_secs(1);
/// How long calls under way are waited for before the probes are taken off, while others begin. Where none does, waiting costs
/// nothing, and the slow ones are what is looked for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a user asks.
pub struct Question {
    /// The process.
    pub pid: u32,
    /// The function, or the command that it implements.
    pub function: String,
    /// For how long to look.
    pub length: Duration,
    /// Calls that take longer are reported one by one.
    pub slower: Option<Duration>,
    /// What it may cost, above 0.
    pub budget: OverheadBudget,
    /// Where to look for debug files first.
    pub debug_dirs: Vec<PathBuf>,
}

/// Why a trace ends before its time.
enum Stopped {
    /// The user wants it, or does not read on.
    Asked,
    /// The process has ended.
    Gone,
}

/// Looks for as long as the question says, and prints what is seen.
///
/// # Errors
///
/// Says what cannot be traced, and what to do.
pub fn answer(question: &Question) -> anyhow::Result<()> {
    let slower = question.slower;
    let subject = Subject::find(
        question.pid,
        &question.function,
        slower.is_some(),
        &question.debug_dirs,
    )?;
    let mut tracer = Tracer::load()?;
    let reads = subject.evicted_keys.is_some();
    let costs = tracer.calibrate(subject.function.entry.emulated, reads)?;
    let ending = Ending::listen()?;
    let cycles = subject.cycles.iter();
    let tracing = tracer.trace(Traced {
        pid: question.pid,
        exe: subject.exe.file().try_clone()?,
        entry: subject.function.entry.file_offset,
        cycles: cycles
            .filter_map(|own| Some((own.begin?, own.number)))
            .collect(),
        server: subject.server,
        evicted_keys: subject.evicted_keys,
        slower_ns: slower.map(nanoseconds),
    })?;
    let begun = monotonic();
    let mut session = Session {
        question,
        subject: &subject,
        costs,
        clock: Clock {
            zero: unix_time().saturating_sub(begun),
        },
        ending,
        tracing,
        begun,
        is_on: false,
        observed: Duration::ZERO,
        observed_until: begun,
        counts: TraceCounts::NONE,
        abandoned: 0,
        slow: 0,
        placed: 0,
        paid: 0.0,
    };
    let answered = session.run();
    match answered.map_err(|error| error.downcast::<std::io::Error>()) {
        Ok(()) => Ok(()),
        // A reader that has seen enough (`| head`) is no failure.
        Err(Ok(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(Ok(error)) => Err(error.into()),
        Err(Err(error)) => Err(error),
    }
}

/// A trace under way. When it ends, however it does, the probes are taken off.
struct Session<'a> {
    question: &'a Question,
    subject: &'a Subject,
    costs: TraceCosts,
    clock: Clock,
    ending: Ending,
    tracing: Tracing,
    begun: Duration,
    /// Whether calls that begin now are counted.
    is_on: bool,
    /// For how long they were, until when that was added up.
    observed: Duration,
    observed_until: Duration,
    counts: TraceCounts,
    /// Calls that had not returned when the probes were taken off.
    abandoned: u64,
    /// Slow calls that were shown.
    slow: u64,
    /// At how many sites probes were placed.
    placed: u64,
    /// What all of it had cost at the last look, nanoseconds.
    paid: f64,
}

impl Session<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let budget = self.question.budget.share();
        say(&self.head())?;
        self.turn_on()?;
        self.begun = self.observed_until;
        let mut stopped = self.wait(TRIAL)?;
        let trial = self.look();
        // Without the placing, which costs as much however short the trial is.
        let at_once = self.hits_ns() / nanoseconds(trial.max(TRIAL)) as f64;
        let Some(mut pace) = Pace::new(budget, self.begun, at_once) else {
            bail!(
                "{} is called so often that its probes would cost {} of a thread's time, and even {} of it in ten seconds are more than the budget of {}: allow more with --overhead-budget",
                self.subject.function,
                share(at_once),
                duration(TRIAL.as_nanos() as f64),
                share(budget)
            );
        };
        say(&self.predicted(trial, at_once, &pace))?;
        let deadline = self.begun + self.question.length;
        let mut next_second = self.begun + SECOND;
        // Of the seconds that were printed.
        let mut before = (self.begun, Duration::ZERO, TraceCounts::NONE);
        while stopped.is_none() {
            if !self.is_on && pace.next().is_some_and(|due| due <= monotonic()) {
                // Before they are placed again; the time for which they are to be on begins after that.
                self.tracing.settle();
            }
            let now = monotonic();
            let is_wanted = pace.update(now, self.spent());
            self.turn(is_wanted)?;
            if self.tracing.has_lost_keeper() {
                return Err(ProbeError::KeeperEnded.into());
            }
            self.print_slow_calls()?;
            if now >= next_second || now >= deadline {
                self.print(&mut before, now)?;
                next_second = now + SECOND;
            }
            if now >= deadline {
                break;
            }
            let turn = match self.is_on {
                true => now + TURN,
                false => next_second,
            };
            let next = turn.min(next_second).min(deadline);
            let next = pace.next().map_or(next, |due| next.min(due.max(now)));
            stopped = self.wait(next.saturating_sub(now))?;
            self.look();
        }
        self.turn_off();
        self.print_slow_calls()?;
        let now = monotonic();
        if stopped.is_some() && now > before.0 {
            self.print(&mut before, now)?;
        }
        self.spent();
        say(&self.summary(now))?;
        if let Some(Stopped::Gone) = stopped {
            // Nobody may read it.
            let _ = writeln!(
                stderr(),
                "evictscope: process {} has ended",
                self.question.pid
            );
        }
        Ok(())
    }

    /// Waits for some time. Returns why the trace is to end, where it is.
    fn wait(&self, rest: Duration) -> anyhow::Result<Option<Stopped>> {
        // A moment at least: what comes in between is never looked at without a pause.
        let rest = rest.max(Duration::from_micros(200));
        if self.ending.wait_until(Instant::now() + rest) {
            return Ok(Some(Stopped::Asked));
        }
        Ok(self.subject.handle.has_ended().then_some(Stopped::Gone))
    }

    /// Takes in the counts, and adds up for how long calls were observed. Returns for how long since the last time.
    fn look(&mut self) -> Duration {
        let now = monotonic();
        let elapsed = now.saturating_sub(self.observed_until);
        self.observed_until = now;
        if self.is_on {
            self.observed += elapsed;
        }
        self.counts = self.tracing.counts();
        elapsed
    }

    /// Returns what all hits have cost, nanoseconds.
    fn hits_ns(&self) -> f64 {
        let TraceCounts {
            entry_hits,
            cycle_hits,
            ..
        } = self.counts;
        entry_hits as f64 * self.costs.call_ns + cycle_hits as f64 * self.costs.cycle_ns
    }

    /// Returns what the probes have cost since the last time, nanoseconds: hits, and the placing.
    fn spent(&mut self) -> f64 {
        let total = self.hits_ns() + self.placed as f64 * HitCosts::DOCUMENTED.placing_ns;
        let spent = total - self.paid;
        self.paid = total;
        spent
    }

    fn turn(&mut self, is_wanted: bool) -> anyhow::Result<()> {
        match (self.is_on, is_wanted) {
            (false, true) => self.turn_on(),
            (true, false) => {
                self.turn_off();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn turn_on(&mut self) -> anyhow::Result<()> {
        match self.tracing.place() {
            // That it is seen to have ended.
            Err(ProbeError::Gone(_)) => return Ok(()),
            placed => placed?,
        }
        self.placed += self.tracing.sites() as u64;
        self.observed_until = monotonic();
        self.is_on = true;
        Ok(())
    }

    /// Takes the probes off, after the calls under way have returned: else the long ones would be missing.
    fn turn_off(&mut self) {
        if !self.is_on {
            return;
        }
        self.tracing.stop_observing();
        self.look();
        self.is_on = false;
        let mut patience = monotonic() + PATIENCE;
        while self.unfinished() > 0
            && monotonic() < patience
            && !matches!(self.wait(Duration::from_millis(1)), Ok(Some(_)))
        {
            let before = self.counts.entry_hits;
            self.counts = self.tracing.counts();
            let now = monotonic();
            if self.counts.entry_hits == before && now < self.begun + self.question.length {
                patience = now + PATIENCE;
            }
        }
        self.abandoned += self.unfinished();
        self.tracing.take_off();
    }

    /// Returns how many calls are under way.
    fn unfinished(&self) -> u64 {
        let counts = &self.counts;
        let done = counts.ended() + counts.lost + self.abandoned;
        counts.begun.saturating_sub(done)
    }

    fn head(&self) -> String {
        let (subject, entry) = (self.subject, &self.subject.function.entry);
        let identity = &subject.function.identity;
        let kernel = match entry.emulated {
            true => "emulates",
            false => "single-steps",
        };
        let mut said = format!(
            "tracing {} in process {} ({} {})\n  probe  at {:#x}: {} (the kernel {kernel} it), and at the return\n",
            subject.function,
            self.question.pid,
            identity.product.unwrap_or("unknown product"),
            identity.version.as_deref().unwrap_or("of unknown version"),
            entry.address,
            entry.instruction,
        );
        if let Some(path) = &subject.debug_file {
            said += &format!("  names  from {}\n", path.display());
        }
        if self.question.slower.is_some() && subject.cycles.is_empty() {
            said +=
                "  no evicting call or expire cycle can be told: `evictscope inspect` says why\n";
        }
        said
    }

    fn predicted(&self, trial: Duration, at_once: f64, pace: &Pace) -> String {
        let rate = self.counts.entry_hits as f64 / trial.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut said = format!(
            "  cost   {} each call, measured on this machine; in {} there were {} calls: {} of one thread's time\n",
            duration(self.costs.call_ns),
            duration(trial.as_nanos() as f64),
            self.counts.entry_hits,
            share(rate * self.costs.call_ns / 1e9),
        );
        if pace.is_sampled() {
            said += &format!(
                "  that is over the budget of {}, so the probes are on for about {} of the time\n",
                share(self.question.budget.share()),
                share(self.question.budget.share() / at_once)
            );
            if self.question.slower.is_some() {
                said += "  slow calls that begin while they are off are missing: name a function that is called less, as that of one command (EVAL), or allow more with --overhead-budget\n";
            }
        }
        said += &format!(
            "attached for {:.0} s; Ctrl-C ends it\n\n",
            self.question.length.as_secs_f64()
        );
        if self.question.slower.is_some() {
            said += &report::slow_calls_head(&self.subject.cycles);
        }
        said
    }

    /// Prints the slow calls since the last time, where they were asked for.
    fn print_slow_calls(&mut self) -> anyhow::Result<()> {
        if self.question.slower.is_none() {
            return Ok(());
        }
        let (pid, cycles) = (self.question.pid, &self.subject.cycles);
        let calls = self.tracing.slow_calls();
        self.slow += calls.len() as u64;
        let lines = calls
            .into_iter()
            .map(|call| report::slow_call(&call, pid, cycles, self.clock));
        say(&lines.collect::<String>())
    }

    /// Prints the histogram of what was counted since `before` (its time, what was observed until then, and its counts),
    /// where slow calls were not asked for.
    fn print(
        &self,
        before: &mut (Duration, Duration, TraceCounts),
        now: Duration,
    ) -> anyhow::Result<()> {
        let second = Second {
            at: now,
            length: now.saturating_sub(before.0),
            observed: self.observed.saturating_sub(before.1),
            before: &before.2,
            now: &self.counts,
        };
        let said = match self.question.slower {
            Some(_) => String::new(),
            None => second.text(self.clock),
        };
        *before = (now, self.observed, self.counts.clone());
        say(&said)
    }

    fn summary(&self, now: Duration) -> String {
        let length = now.saturating_sub(self.begun);
        let summary = Summary {
            function: self.subject.function.to_string(),
            length,
            observed: self.observed,
            counts: &self.counts,
            unfinished: self.abandoned,
            slow: self.question.slower.map(|slower| (slower, self.slow)),
            call_ns: self.costs.call_ns,
            cost: self.paid / nanoseconds(length).max(1) as f64,
            budget: self.question.budget.share(),
        };
        summary.text()
    }
}

/// Prints at once, so that a pipe gets it too.
fn say(text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}
