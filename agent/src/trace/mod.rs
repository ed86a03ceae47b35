//! `evictscope trace`: the latency of one function of a server, during an investigation.
//!
//! [`subject`] finds the process and the function. The loop here turns the probes ([`probing`]) on and off as [`pace`]
//! says, and prints what [`report`] makes of the counts.
//!
//! Deliberately absent: anything that is exported. This is a question, not a metric.

mod pace;
mod probing;
mod report;
mod subject;

use std::io;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use evictscope_host::{Words, printable};
use evictscope_probes::{ProbeError, TraceCounts, TraceJob, Tracer};
use evictscope_telemetry::{OverheadBudget, nanoseconds};

use self::pace::{TRIAL, TracePace};
use self::probing::TraceProbes;
use self::report::{Second, TraceSummary, duration, share};
use self::subject::{InnerCycle, TraceTarget};
use crate::clock::{monotonic, since_1970};
use crate::planning::DebugDirs;
use crate::terminal::{EndSignals, note, try_print};
use crate::text::parse_duration;

/// How often the counts are read while the probes are on.
const TURN: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// The longest trace: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// Show how long the calls of one function of a server take: a histogram each second, or with --slower each slow call
///
/// FUNCTION is a function's name, if the executable or its debug file has it, or a command that it implements, such as
/// GET or CONFIG|GET: that works in stripped servers, too. Calls of all threads are counted; if a function calls
/// itself, only the outermost call.
///
/// Two probes are placed, at the entry and at the return. First, what a call costs is measured, and how often the
/// function is called. If that is more than the budget, the probes are on for part of the time, and the output says
/// which part was observed. When evictscope ends, however it does, the probes are gone. It may run beside `evictscope
/// run`.
///
/// Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (before Linux 6.6, CAP_SYS_ADMIN as
/// well).
///
/// Exit code 0 also if the process ends first, 1 if the function is not found or cannot be traced. docs/TOUR.md
/// explains the output.
#[derive(clap::Args)]
pub struct TraceArguments {
    /// Process id of a running server
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,
    /// Name of the function, or of a command
    function: String,
    /// For how long to look, in seconds
    #[arg(long, default_value = "30", value_parser = parse_seconds)]
    seconds: Duration,
    /// Show each call that takes longer, with its unit: 100us, 1ms, 0.5s. Says whether an evicting call or an expire
    /// cycle began in it. No histograms then
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    slower: Option<Duration>,
    /// Share of one thread's time that the probes may cost
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_budget)]
    overhead_budget: OverheadBudget,
    #[command(flatten)]
    debug_dirs: DebugDirs,
}

fn parse_seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("not a number of seconds from 0.1 to 86400")
}

fn parse_budget(text: &str) -> anyhow::Result<OverheadBudget> {
    let budget: OverheadBudget = text.parse()?;
    ensure!(budget.share() > 0.0, "nothing can be traced then: allow 1%, for example");
    Ok(budget)
}

/// Why a trace ends before its time.
enum Stopped {
    /// The user wants it to, or has stopped reading.
    Asked,
    /// The process has ended.
    Gone,
}

/// Looks for as long as the arguments say, and prints what is seen. Fails with what cannot be traced, and what to do.
pub fn answer(arguments: &TraceArguments) -> anyhow::Result<()> {
    let slower = arguments.slower;
    let mut subject =
        TraceTarget::find(arguments.pid, &arguments.function, slower.is_some(), &arguments.debug_dirs.debug_dir)?;
    let mut tracer = Tracer::load()?;
    let costs = tracer.calibrate(subject.function.entry.emulated, subject.evicted_keys.is_some())?;
    let ending = EndSignals::listen()?;
    let cycle = |cycle: &InnerCycle| Some((cycle.begin.as_ref()?.file_offset, cycle.number));
    let tracing = tracer.trace(TraceJob {
        pid: arguments.pid,
        exes: std::mem::take(&mut subject.exes),
        memory: Words::open(arguments.pid)?,
        addresses: subject.places().map(|(_, address)| address).collect(),
        entry: subject.function.entry.file_offset,
        cycles: subject.cycles.iter().filter_map(cycle).collect(),
        eviction: subject.eviction,
        evicted_keys: subject.evicted_keys,
        slower_ns: slower.map(nanoseconds),
    })?;
    let begun = monotonic();
    let mut session = Session {
        arguments,
        subject: &subject,
        zero: since_1970(),
        ending,
        probing: TraceProbes::new(tracing, costs, begun),
        begun,
        slow: 0,
    };
    session.run().or_else(|error| match error.downcast_ref::<io::Error>() {
        // A reader that has seen enough (`| head`) is not a failure.
        Some(written) if written.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// A trace under way. However it ends, the probes are taken off.
struct Session<'a> {
    arguments: &'a TraceArguments,
    subject: &'a TraceTarget,
    /// The time of day at which the monotonic clock was 0, since 1970.
    zero: Duration,
    ending: EndSignals,
    probing: TraceProbes,
    begun: Duration,
    /// Slow calls that were shown.
    slow: u64,
}

impl Session<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let budget = self.arguments.overhead_budget.share();
        try_print(&self.head())?;
        self.probing.turn_on()?;
        self.begun = self.probing.observed_until;
        let mut stopped = wait(&self.ending, self.subject, TRIAL);
        let trial = self.probing.look();
        // The placing does not count: it costs as much however short the trial is.
        let at_once = self.probing.hits_ns() / nanoseconds(trial.max(TRIAL)) as f64;
        let Some(mut pace) = TracePace::new(budget, self.begun, at_once) else {
            bail!(
                "{} is called so often that its probes would cost {} of a thread's time, and even {} of it in ten seconds are more than the budget of {}: allow more with --overhead-budget",
                self.subject.function,
                share(at_once),
                duration(TRIAL.as_nanos() as f64),
                share(budget)
            );
        };
        try_print(&self.predicted(trial, at_once, &pace))?;
        let deadline = self.begun + self.arguments.seconds;
        let mut next_second = self.begun + SECOND;
        // What was known when the last second was printed.
        let mut before = (self.begun, Duration::ZERO, TraceCounts::default());
        while stopped.is_none() {
            if !self.probing.is_on && pace.next().is_some_and(|due| due <= monotonic()) {
                // Waits before they are placed again: the time for which they must be on begins after that.
                self.probing.tracing.settle();
            }
            let now = monotonic();
            if pace.update(now, self.probing.spent()) {
                self.probing.turn_on()?
            } else {
                self.turn_off()
            }
            if self.probing.tracing.has_lost_keeper() {
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
            let turn = if self.probing.is_on { now + TURN } else { next_second };
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
            note(&format!("evictscope: process {} has ended", self.arguments.pid));
        }
        Ok(())
    }

    fn turn_off(&mut self) {
        let (ending, subject) = (&self.ending, self.subject);
        self.probing.turn_off(self.begun + self.arguments.seconds, |moment| wait(ending, subject, moment).is_some());
    }

    fn head(&self) -> String {
        let (subject, entry) = (self.subject, &self.subject.function.entry);
        let identity = &subject.function.identity;
        let kernel = if entry.emulated { "emulates" } else { "single-steps" };
        let mut text = format!(
            "tracing {} in process {} ({} {})\n  probe  at {:#x}: {} (the kernel {kernel} it), and at the return\n",
            subject.function,
            self.arguments.pid,
            identity.product.unwrap_or("unknown product"),
            identity.version.as_deref().unwrap_or("of unknown version"),
            entry.address,
            entry.instruction,
        );
        if let Some(path) = &subject.debug_file {
            text += &format!("  names  from {}\n", printable(&path.to_string_lossy()));
        }
        if self.arguments.slower.is_some() && subject.cycles.is_empty() {
            text += "  evicting calls and expire cycles are not recognised: `evictscope inspect` says why\n";
        }
        text
    }

    fn predicted(&self, trial: Duration, at_once: f64, pace: &TracePace) -> String {
        let (calls, call_ns) = (&self.probing.counts.calls, self.probing.costs.call_ns);
        let rate = calls.entry_hits as f64 / trial.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut text = format!(
            "  cost   {} each call, measured on this machine; in {} there were {} calls: {} of one thread's time\n",
            duration(call_ns),
            duration(trial.as_nanos() as f64),
            calls.entry_hits,
            share(rate * call_ns / 1e9),
        );
        if pace.is_sampled() {
            text += &format!(
                "  that is over the budget of {}, so the probes are on for about {} of the time\n",
                share(self.arguments.overhead_budget.share()),
                share(self.arguments.overhead_budget.share() / at_once)
            );
            if self.arguments.slower.is_some() {
                text += "  slow calls that begin while they are off are missing: name a function that is called less often, such as that of one command (EVAL), or allow more with --overhead-budget\n";
            }
        }
        text += &format!("attached for {:.0} s; Ctrl-C ends it\n\n", self.arguments.seconds.as_secs_f64());
        if self.arguments.slower.is_some() {
            text += &report::slow_calls_head(&self.subject.cycles);
        }
        text
    }

    /// Prints the slow calls since the last time, if they were asked for.
    fn print_slow_calls(&mut self) -> anyhow::Result<()> {
        if self.arguments.slower.is_none() {
            return Ok(());
        }
        let (pid, cycles) = (self.arguments.pid, &self.subject.cycles);
        let calls = self.probing.tracing.slow_calls();
        self.slow += calls.len() as u64;
        let lines = calls.into_iter().map(|call| report::slow_call(&call, pid, cycles, self.zero));
        Ok(try_print(&lines.collect::<String>())?)
    }

    /// Prints the histogram of what was counted since `before` (its time, what was observed until then, and its
    /// counts), unless slow calls were asked for.
    fn print(&self, before: &mut (Duration, Duration, TraceCounts), now: Duration) -> anyhow::Result<()> {
        let second = Second {
            at: self.zero + now,
            length: now.saturating_sub(before.0),
            observed: self.probing.observed.saturating_sub(before.1),
            before: &before.2,
            now: &self.probing.counts,
        };
        let text = if self.arguments.slower.is_some() { String::new() } else { second.text() };
        *before = (now, self.probing.observed, self.probing.counts.clone());
        Ok(try_print(&text)?)
    }

    fn summary(&self, now: Duration) -> String {
        let length = now.saturating_sub(self.begun);
        TraceSummary {
            function: self.subject.function.to_string(),
            length,
            observed: self.probing.observed,
            counts: &self.probing.counts,
            unfinished: self.probing.abandoned,
            slow: self.arguments.slower.map(|slower| (slower, self.slow)),
            call_ns: self.probing.costs.call_ns,
            cost: self.probing.paid_ns / nanoseconds(length).max(1) as f64,
            budget: self.arguments.overhead_budget.share(),
        }
        .text()
    }
}

/// Waits for some time. Returns why the trace must end, if it must.
fn wait(ending: &EndSignals, subject: &TraceTarget, rest: Duration) -> Option<Stopped> {
    // At least a moment, so that what comes in between is never looked at without a pause.
    let rest = rest.max(Duration::from_micros(200));
    if ending.wait_until(Instant::now() + rest) {
        return Some(Stopped::Asked);
    }
    subject.handle.has_ended().then_some(Stopped::Gone)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parse_budget, parse_seconds};

    #[test]
    fn a_trace_is_from_a_tenth_of_a_second_to_a_day_long() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2_500)));
        for text in ["0", "-1", "nan", "1e9", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_can_be_traced_for_nothing() {
        let share = |text| parse_budget(text).ok().map(|budget| budget.share());
        assert_eq!(share("2%"), Some(0.02));
        for text in ["0%", "0", "-1%", "x"] {
            assert_eq!(share(text), None, "{text}");
        }
    }
}
