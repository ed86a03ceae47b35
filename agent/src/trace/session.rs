//! The loop of a trace.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use evictscope_host::{Words, printable};
use evictscope_probes::{ProbeError, TraceCounts, Traced, Tracer};
use evictscope_telemetry::{OverheadBudget, nanoseconds};

use super::ending::Ending;
use super::pace::{Pace, TRIAL};
use super::probing::Probing;
use super::report::{self, Clock, Second, Summary, duration, share};
use super::subject::Subject;
use crate::clock::{monotonic, since_1970};
use crate::terminal::{note, try_print};

/// How often the counts are read while the probes are on.
const TURN: Duration = Duration::from_millis(10);
/// How often a histogram is printed.
const SECOND: Duration = Duration::from_secs(1);
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
    /// The user wants it to, or has stopped reading.
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
    let mut subject = Subject::find(question.pid, &question.function, slower.is_some(), &question.debug_dirs)?;
    let mut tracer = Tracer::load()?;
    let reads = subject.evicted_keys.is_some();
    let costs = tracer.calibrate(subject.function.entry.emulated, reads)?;
    let ending = Ending::listen()?;
    let cycles = subject.cycles.iter();
    let tracing = tracer.trace(Traced {
        pid: question.pid,
        exes: std::mem::take(&mut subject.exes),
        memory: Words::open(question.pid)?,
        addresses: subject.places().map(|(_, address)| address).collect(),
        entry: subject.function.entry.file_offset,
        cycles: cycles.filter_map(|own| Some((own.begin.as_ref()?.file_offset, own.number))).collect(),
        server: subject.server,
        evicted_keys: subject.evicted_keys,
        slower_ns: slower.map(nanoseconds),
    })?;
    let begun = monotonic();
    let mut session = Session {
        question,
        subject: &subject,
        clock: Clock { zero: since_1970() },
        ending,
        probing: Probing::new(tracing, costs, begun),
        begun,
        slow: 0,
    };
    let answered = session.run();
    match answered.map_err(|error| error.downcast::<std::io::Error>()) {
        Ok(()) => Ok(()),
        // A reader that has seen enough (`| head`) is not a failure.
        Err(Ok(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(Ok(error)) => Err(error.into()),
        Err(Err(error)) => Err(error),
    }
}

/// A trace under way. However it ends, the probes are taken off.
struct Session<'a> {
    question: &'a Question,
    subject: &'a Subject,
    clock: Clock,
    ending: Ending,
    probing: Probing,
    begun: Duration,
    /// Slow calls that were shown.
    slow: u64,
}

impl Session<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let budget = self.question.budget.share();
        try_print(&self.head())?;
        self.probing.turn_on()?;
        self.begun = self.probing.looked();
        let mut stopped = wait(&self.ending, self.subject, TRIAL);
        let trial = self.probing.look();
        // The placing does not count: it costs as much however short the trial is.
        let at_once = self.probing.hits_ns() / nanoseconds(trial.max(TRIAL)) as f64;
        let Some(mut pace) = Pace::new(budget, self.begun, at_once) else {
            bail!(
                "{} is called so often that its probes would cost {} of a thread's time, and even {} of it in ten seconds are more than the budget of {}: allow more with --overhead-budget",
                self.subject.function,
                share(at_once),
                duration(TRIAL.as_nanos() as f64),
                share(budget)
            );
        };
        try_print(&self.predicted(trial, at_once, &pace))?;
        let deadline = self.begun + self.question.length;
        let mut next_second = self.begun + SECOND;
        // What was known when the last second was printed.
        let mut before = (self.begun, Duration::ZERO, TraceCounts::NONE);
        while stopped.is_none() {
            if !self.probing.is_on() && pace.next().is_some_and(|due| due <= monotonic()) {
                // Waits before they are placed again: the time for which they must be on begins after that.
                self.probing.settle();
            }
            let now = monotonic();
            if pace.update(now, self.probing.spent()) {
                self.probing.turn_on()?
            } else {
                self.turn_off()
            }
            if self.probing.has_lost_keeper() {
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
            let turn = if self.probing.is_on() { now + TURN } else { next_second };
            let next = turn.min(next_second).min(deadline);
            let next = pace.next().map_or(next, |due| next.min(due.max(now)));
            stopped = wait(&self.ending, self.subject, next.saturating_sub(now));
            self.probing.look();
        }
        self.turn_off();
        self.print_slow_calls()?;
        let now = monotonic();
        if stopped.is_some() && now > before.0 {
            self.print(&mut before, now)?;
        }
        self.probing.spent();
        try_print(&self.summary(now))?;
        if let Some(Stopped::Gone) = stopped {
            note(&format!("evictscope: process {} has ended", self.question.pid));
        }
        Ok(())
    }

    /// Takes the probes off.
    fn turn_off(&mut self) {
        let deadline = self.begun + self.question.length;
        let (ending, subject) = (&self.ending, self.subject);
        let is_over = |moment| wait(ending, subject, moment).is_some();
        self.probing.turn_off(deadline, is_over);
    }

    fn head(&self) -> String {
        let (subject, entry) = (self.subject, &self.subject.function.entry);
        let identity = &subject.function.identity;
        let kernel = if entry.emulated { "emulates" } else { "single-steps" };
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
            said += &format!("  names  from {}\n", printable(&path.to_string_lossy()));
        }
        if self.question.slower.is_some() && subject.cycles.is_empty() {
            said += "  evicting calls and expire cycles are not recognised: `evictscope inspect` says why\n";
        }
        said
    }

    fn predicted(&self, trial: Duration, at_once: f64, pace: &Pace) -> String {
        let (counts, call_ns) = (self.probing.counts(), self.probing.call_ns());
        let rate = counts.entry_hits as f64 / trial.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut said = format!(
            "  cost   {} each call, measured on this machine; in {} there were {} calls: {} of one thread's time\n",
            duration(call_ns),
            duration(trial.as_nanos() as f64),
            counts.entry_hits,
            share(rate * call_ns / 1e9),
        );
        if pace.is_sampled() {
            said += &format!(
                "  that is over the budget of {}, so the probes are on for about {} of the time\n",
                share(self.question.budget.share()),
                share(self.question.budget.share() / at_once)
            );
            if self.question.slower.is_some() {
                said += "  slow calls that begin while they are off are missing: name a function that is called less often, such as that of one command (EVAL), or allow more with --overhead-budget\n";
            }
        }
        said += &format!("attached for {:.0} s; Ctrl-C ends it\n\n", self.question.length.as_secs_f64());
        if self.question.slower.is_some() {
            said += &report::slow_calls_head(&self.subject.cycles);
        }
        said
    }

    /// Prints the slow calls since the last time, if they were asked for.
    fn print_slow_calls(&mut self) -> anyhow::Result<()> {
        if self.question.slower.is_none() {
            return Ok(());
        }
        let (pid, cycles) = (self.question.pid, &self.subject.cycles);
        let calls = self.probing.slow_calls();
        self.slow += calls.len() as u64;
        let lines = calls.into_iter().map(|call| report::slow_call(&call, pid, cycles, self.clock));
        Ok(try_print(&lines.collect::<String>())?)
    }

    /// Prints the histogram of what was counted since `before` (its time, what was observed until then, and its
    /// counts), unless slow calls were asked for.
    fn print(&self, before: &mut (Duration, Duration, TraceCounts), now: Duration) -> anyhow::Result<()> {
        let second = Second {
            at: now,
            length: now.saturating_sub(before.0),
            observed: self.probing.observed().saturating_sub(before.1),
            before: &before.2,
            now: self.probing.counts(),
        };
        let said = match self.question.slower {
            Some(_) => String::new(),
            None => second.text(self.clock),
        };
        *before = (now, self.probing.observed(), self.probing.counts().clone());
        Ok(try_print(&said)?)
    }

    fn summary(&self, now: Duration) -> String {
        let length = now.saturating_sub(self.begun);
        let summary = Summary {
            function: self.subject.function.to_string(),
            length,
            observed: self.probing.observed(),
            counts: self.probing.counts(),
            unfinished: self.probing.abandoned(),
            slow: self.question.slower.map(|slower| (slower, self.slow)),
            call_ns: self.probing.call_ns(),
            cost: self.probing.paid_ns() / nanoseconds(length).max(1) as f64,
            budget: self.question.budget.share(),
        };
        summary.text()
    }
}

/// Waits for some time. Returns why the trace must end, if it must.
fn wait(ending: &Ending, subject: &Subject, rest: Duration) -> Option<Stopped> {
    // At least a moment, so that what comes in between is never looked at without a pause.
    let rest = rest.max(Duration::from_micros(200));
    if ending.wait_until(Instant::now() + rest) {
        return Some(Stopped::Asked);
    }
    subject.handle.has_ended().then_some(Stopped::Gone)
}
