//! One run: the server, the load, the recorder, and the end of all three.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use evictscope_testkit::clock::unix_time;
use evictscope_testkit::cores::Cores;
use evictscope_testkit::process;
use evictscope_testkit::progress::Progress;
use evictscope_testkit::redis::Redis;

use crate::client::Client;
use crate::expiry::Switch;
use crate::observer::{Observer, Seen};
use crate::prepare::{Prepared, prepare, start_server};
use crate::scenario::{Plan, Remedy, Scenario, name_of};
use crate::schedule::{Pacer, Rate};
use crate::summary::{self, Finished, beside, comparison};
use crate::visitor;
use crate::witness::Witness;

/// How often the run checks whether something has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Time between lines about the state of the run.
const SECOND: Duration = Duration::from_secs(1);

/// How long after its last eviction a cycle is complete, in seconds. A backlog that is worked off makes memory swell
/// once more.
const FINAL: f64 = 5.0;

/// Makes a run on `cores`, and prints each cycle when it is complete. Server and clients have ended when it returns.
pub fn carry_out(plan: &Plan, cores: Option<&Cores>, interrupted: &AtomicBool) -> Result<Finished> {
    let server = start_server(&plan.parameters, cores)?;
    let progress = Progress::start(&plan.name);
    let prepared = prepare(plan, &server, &progress, interrupted);
    // If the server has ended, that is the better reason.
    server.must_be_alive()?;
    let Prepared { mut generator, mut recorder, measured } = prepared?;
    // Off while the agent starts, so that it sees each key that expires under load and no other.
    let mut expiry = (plan.measures_expiry).then(|| Switch::off_without_keys(server.port())).transpose()?;
    let mut witness = (plan.agent.as_ref()).map(|agent| Witness::start(agent, &server)).transpose()?;
    if let Some(expiry) = &mut expiry {
        expiry.on()?;
    }
    let mut client = Client::connect(server.port())?;
    client.call(&["LATENCY", "RESET"])?;

    let mut observer = Observer::new(&plan.parameters)?;
    let heading = summary::heading(&server, cores, &measured, &plan.parameters);
    progress.print(&heading);
    if let Some(witness) = &witness {
        progress.print(&format!("evictscope     {}", witness.place()));
    }
    let rate = Rate::new(measured.rate);
    let stop = AtomicBool::new(false);
    let is_over = || stop.load(Ordering::Relaxed) || interrupted.load(Ordering::Relaxed);
    let (sender, lines) = mpsc::channel();
    let (watched, testimony, ended) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for ask in recorder.asking(&stop, &sender) {
            threads.push(scope.spawn(ask));
        }
        if let Some(visitor) = &plan.parameters.visitor {
            threads.push(scope.spawn(|| visitor::come(visitor, server.port(), &stop)));
        }
        threads.push(scope.spawn(|| {
            // The receiver outlives the load.
            let tell = |load| drop(sender.send(Seen::Load(load)));
            generator.run(&rate, tell, |_| is_over())
        }));
        let mut watch = Watch {
            plan,
            server: &server,
            rate: &rate,
            lines: &lines,
            progress: &progress,
            witness: witness.as_mut(),
            observer: &mut observer,
            printed: 0,
            // If expiry is to fall behind, the server must have more to do than it can.
            pacer: (plan.rate.is_none() && !plan.measures_expiry).then(|| Pacer::corrects(plan.parameters.busy)),
        };
        let watched = watch.until_fulfilled(|| threads.iter().any(ScopedJoinHandle::is_finished));
        // The load still goes on here, because memory also falls when the clients leave.
        let testimony = match (&watched, &witness) {
            (Ok(()), Some(witness)) if !is_over() => witness.testify(&server).map(Some),
            _ => Ok(None),
        };
        stop.store(true, Ordering::Relaxed);
        let ended = threads.into_iter().map(|thread| {
            let panicked = || anyhow!("a thread of the lab panicked");
            thread.join().unwrap_or_else(|_| Err(panicked()))
        });
        (watched, testimony, ended.collect::<Vec<_>>())
    });
    let ended_at = unix_time()?;
    progress.finish();
    if let Err(error) = (ended.into_iter()).fold(watched, |all, ended| all.and(ended)) {
        server.must_be_alive()?;
        // A server that is kept from its CPU for long enough does not answer.
        return Err(match observer.disturbance() {
            Some(disturbance) => error.context(format!("disturbed: {disturbance}")),
            None => error,
        });
    }
    let longest_call = client.longest_evicting_call()?;
    let expiry = expiry.map(Switch::end).transpose()?;
    let records = match witness {
        Some(witness) => witness.end(&plan.name)?,
        None => Vec::new(),
    };
    // The lines since the last look.
    for line in lines.try_iter() {
        observer.take(line);
    }
    let interrupted = interrupted.load(Ordering::Relaxed);
    Ok(Finished {
        measured,
        outcome: observer.end(ended_at, interrupted, rate.get(), longest_call, expiry)?,
        testimony: testimony?,
        records,
    })
}

/// A run under load, and what was seen of it so far.
struct Watch<'a> {
    plan: &'a Plan,
    server: &'a Redis,
    rate: &'a Rate,
    lines: &'a Receiver<Seen>,
    progress: &'a Progress,
    witness: Option<&'a mut Witness>,
    observer: &'a mut Observer,
    /// The number of cycles that were printed.
    printed: usize,
    /// What corrects the rate, until the server is at its limit.
    pacer: Option<Pacer>,
}

impl Watch<'_> {
    /// Records until the plan is fulfilled, or a thread has ended, which happens early only on an error or an
    /// interruption.
    fn until_fulfilled(&mut self, has_ended: impl Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        let mut told = begun;
        while begun.elapsed() < self.plan.length && !has_ended() {
            let line = match self.lines.recv_timeout(LOOK) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.observer.take(line);
            if !self.observer.is_calm() {
                self.pacer = None;
            }
            if let (Some(pacer), Some(load)) = (&mut self.pacer, self.observer.last_load())
                && let Some(corrected) = pacer.look(self.rate.get(), load)
            {
                self.rate.set(corrected);
            }
            if told.elapsed() < SECOND {
                continue;
            }
            told = Instant::now();
            self.progress.show(self.observer.status());
            self.server.must_be_alive()?;
            if let Some(witness) = &mut self.witness
                && let Some(phase) = witness.new_phase(self.server)?
            {
                let seconds = begun.elapsed().as_secs_f64();
                let line = format!("{seconds:>6.1} s  evictscope: {phase}");
                self.progress.print(&line);
            }
            if self.has_its_cycles()? {
                break;
            }
        }
        Ok(())
    }

    /// Prints the cycles that are complete now, and returns whether there are as many as the plan wants.
    fn has_its_cycles(&mut self) -> Result<bool> {
        let now = unix_time()?;
        let mut complete = self.observer.cycles();
        complete.retain(|cycle| now - cycle.end >= FINAL);
        for cycle in complete.iter().skip(self.printed) {
            self.printed += 1;
            let line = summary::cycle(self.printed, cycle);
            self.progress.print(&line);
        }
        Ok((self.plan.cycles).is_some_and(|enough| complete.len() >= enough))
    }
}

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to make happen
    scenario: Scenario,
    /// End after this many complete cycles
    #[arg(long)]
    cycles: Option<usize>,
    /// Requests a second [default: as many as keep the server as busy as the scenario wants it]
    #[arg(long)]
    rate: Option<f64>,
    /// What `remedy` applies
    #[arg(long, value_enum, default_value = "ttl")]
    remedy: Remedy,
    /// The scenario in which `remedy` applies it [default: by remedy]
    #[arg(long, value_enum)]
    cause: Option<Scenario>,
    /// Watch it with evictscope (needs root), and print what that says beside what was seen
    #[arg(long)]
    pub agent: bool,
}

/// Runs the scenario, watched by `agent`.
pub fn run(arguments: &Arguments, agent: Option<PathBuf>) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let cores = Cores::split()?;
    let scenario = arguments.scenario;
    let remedy = arguments.remedy;
    let is_remedy = scenario == Scenario::Remedy;
    let tried_in = if is_remedy { arguments.cause.unwrap_or_else(|| remedy.scenario()) } else { scenario };
    let mut plan = Plan { name: name_of(&scenario), rate: arguments.rate, ..Plan::new(tried_in, agent) };
    plan.cycles = arguments.cycles.or(plan.cycles);
    let carry_out = |plan: &Plan| -> Result<Finished> {
        let finished = carry_out(plan, cores.as_ref(), &interrupted)?;
        println!("\n{}", summary::outcome(&finished.outcome));
        if let Some(testimony) = &finished.testimony {
            println!("{}", beside(&finished.outcome, testimony));
        }
        Ok(finished)
    };
    let without = carry_out(&plan)?;
    if !is_remedy {
        return Ok(());
    }

    // As long as the run without it, however soon that had its cycles.
    plan.length = Duration::from_secs_f64(without.outcome.seconds);
    plan.cycles = None;
    let mut runs = vec![("without".to_owned(), without)];
    for (name, options) in remedy.runs() {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        plan.name = format!("remedy-{name}");
        let without = &runs[0].1;
        let (key_bytes, rate) = (without.measured.key_bytes, without.outcome.rate);
        plan.rate = Some(rate);
        plan.parameters.remedy = options;
        remedy.apply(&mut plan.parameters, key_bytes, rate);
        runs.push(((*name).to_owned(), carry_out(&plan)?));
    }
    print!("{}", comparison(&runs));
    if let (Some(agent), [(_, without), others @ ..]) = (&plan.agent, &runs[..]) {
        for (name, with) in others {
            println!("\n{name}: {}", compared(agent, without, with)?);
        }
    }
    Ok(())
}

/// Makes one complete cycle, watched by the agent.
pub fn one_cycle(agent: PathBuf, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = Cores::split()?;
    let plan = Plan { cycles: Some(1), ..Plan::new(Scenario::Burst, Some(agent)) };
    carry_out(&plan, cores.as_ref(), interrupted)
}

/// Returns what `evictscope compare` says about the first records of two runs.
fn compared(agent: &Path, without: &Finished, with: &Finished) -> Result<String> {
    let Some((before, after)) = without.records.first().zip(with.records.first()) else {
        return Ok("nothing to compare, because one of the two runs left no record".to_owned());
    };
    process::answer_of(Command::new(agent).arg("compare").args([before, after]))
}
