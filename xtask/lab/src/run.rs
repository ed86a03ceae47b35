//! One run: the server, the load, the recorder, and the end of all three.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use evictscope_testkit::process;
use evictscope_testkit::process::Owned;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::text::{Progress, count};
use evictscope_testkit::threads::Cores;
use evictscope_testkit::wait::unix_time;

use crate::pace::{LoadCounts, Pacer, Rate};
use crate::prepare::{prepare, start_server};
use crate::scenario::{RunPlan, Scenario, TriedRemedy, Visitor, name_of};
use crate::seen::{
    EvictionCycle, Expiry, InfoSample, SampleConnection, Witness, longest_evicting_call, set_active_expiry,
};
use crate::summary::{self, Finished, beside};

/// Between two samples of the server's own numbers.
const INTERVAL: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

/// How long after its last eviction a cycle is complete, in seconds. A backlog that is worked off makes memory swell
/// once more.
const FINAL: f64 = 5.0;

/// Makes a run on `cores`, and prints each cycle when it is complete. Server and clients have ended when it returns.
fn carry_out(plan: &RunPlan, cores: Option<&Cores>, interrupted: &AtomicBool) -> Result<Finished> {
    let parameters = &plan.parameters;
    let server = start_server(parameters, cores)?;
    let progress = Progress::start(&plan.name);
    let prepared = prepare(plan, &server, &progress, interrupted);
    // If the server has ended, that is the better reason.
    server.must_be_alive()?;
    let (mut generator, measured) = prepared?;
    if parameters.measures_expiry {
        // Off while the agent starts, so that it sees each key that expires under load and no other. What was written
        // to measure the capacity would expire in the first seconds.
        set_active_expiry(&server, "0")?;
        server.cli(&["flushall"])?;
    }
    let mut witness = plan.agent.as_ref().map(|agent| Witness::start(agent, &server)).transpose()?;
    server.cli(&["latency", "reset"])?;
    let begin = InfoSample::take(&server)?;
    if parameters.measures_expiry {
        set_active_expiry(&server, "1")?;
    }

    let begun = unix_time()?;
    progress.print(&summary::heading(&server, cores, &measured, parameters));
    if let Some(witness) = &witness {
        progress.print(&format!("evictscope     pid {}, {}", witness.agent.pid(), witness.agent.metrics_url()));
    }
    let rate = Rate::new(measured.rate);
    let stop = AtomicBool::new(false);
    let is_over = || stop.load(Ordering::Relaxed) || interrupted.load(Ordering::Relaxed);
    let (sender, received) = mpsc::channel();
    let mut watch = Watch {
        plan,
        server: &server,
        begun,
        rate: &rate,
        received,
        sampling: SampleConnection::of(&server)?,
        samples: vec![begin],
        loads: Vec::new(),
        progress: &progress,
        witness: witness.as_mut(),
        printed: 0,
        // If expiry is to fall behind, the server must have more to do than it can.
        pacer: (plan.rate.is_none() && !parameters.measures_expiry).then(|| Pacer::corrects(parameters.busy)),
        visitor: None,
    };
    let (watched, ended, testimony) = thread::scope(|scope| {
        // The receiver outlives the load.
        let load = scope.spawn(|| generator.run(&rate, |load| sender.send(load).unwrap_or_default(), |_| is_over()));
        let watched = watch.until_fulfilled(|| load.is_finished());
        // The load still goes on here, because memory also falls when the clients leave.
        let testimony = match watch.witness.take() {
            Some(witness) if watched.is_ok() && !is_over() => witness.testify(&server, || watch.sample()).map(Some),
            _ => Ok(None),
        };
        stop.store(true, Ordering::Relaxed);
        (watched, load.join().unwrap_or_else(|_| Err(anyhow!("the load panicked"))), testimony)
    });
    let at = unix_time()?;
    progress.finish();
    let Watch { mut samples, mut loads, received, .. } = watch;
    loads.extend(received.try_iter());
    let ends = loads.first().zip(loads.last());
    let disturbance = ends.and_then(|(first, last)| last.disturbance_since(first));
    let testimony = match watched.and(ended).and(testimony) {
        Ok(testimony) => testimony,
        Err(_) if interrupted.load(Ordering::Relaxed) => None,
        Err(error) => {
            server.must_be_alive()?;
            return Err(error);
        }
    };
    let (first, last) = ends.context("there was no load")?;
    let end = InfoSample::take(&server)?;
    samples.push(end);
    Ok(Finished {
        measured,
        at,
        interrupted: interrupted.load(Ordering::Relaxed),
        seconds: at - begun,
        load: *last,
        answered: last.totals.answered - first.totals.answered,
        rate: rate.get(),
        evicted_keys: end.evicted_keys - begin.evicted_keys,
        longest_call: longest_evicting_call(&server)?,
        cycles: EvictionCycle::all(&samples),
        disturbance,
        expiry: parameters.measures_expiry.then(|| Expiry::end(begin, &server)).transpose()?,
        testimony,
        records: witness.map(|witness| witness.end(&plan.name)).transpose()?.unwrap_or_default(),
    })
}

struct Watch<'a> {
    plan: &'a RunPlan,
    server: &'a Redis,
    /// When the load began, in seconds since 1970.
    begun: f64,
    rate: &'a Rate,
    received: Receiver<LoadCounts>,
    sampling: SampleConnection,
    samples: Vec<InfoSample>,
    loads: Vec<LoadCounts>,
    progress: &'a Progress,
    witness: Option<&'a mut Witness>,
    /// The number of cycles that were printed.
    printed: usize,
    /// What corrects the rate, until something else than the load happens.
    pacer: Option<Pacer>,
    /// What came besides the clients. It stays until the load has ended.
    visitor: Option<Owned>,
}

impl Watch<'_> {
    /// Takes samples until the plan is fulfilled, or the load has ended, which happens early only on an error or an
    /// interruption.
    fn until_fulfilled(&mut self, has_ended: impl Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        let mut told = begun;
        while begun.elapsed().as_secs_f64() < self.plan.parameters.seconds && !has_ended() {
            self.sample()?;
            let seconds = begun.elapsed().as_secs_f64();
            if let Some(visitor) = &self.plan.parameters.visitor
                && seconds >= visitor.from
                && self.visitor.is_none()
            {
                self.visitor = Some(start(visitor, self.server, self.begun)?);
            }
            self.correct_rate(seconds);
            if told.elapsed() < SECOND {
                continue;
            }
            told = Instant::now();
            if let (Some(load), Some(sample)) = (self.loads.last(), self.samples.last()) {
                self.progress.show(sample.status(load));
            }
            self.server.must_be_alive()?;
            if let Some(witness) = &mut self.witness
                && let Some(phase) = witness.new_phase(self.server)?
            {
                self.progress.print(&format!("{seconds:>6.1} s  evictscope: {phase}"));
            }
            if self.has_its_cycles()? {
                break;
            }
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        thread::sleep(INTERVAL);
        self.visitor.as_ref().map_or(Ok(()), Owned::must_not_have_failed)?;
        self.samples.push(self.sampling.sample()?);
        self.loads.extend(self.received.try_iter());
        Ok(())
    }

    /// Keeps the main thread as busy as it is to be, while nothing but the load has happened: no key was evicted, and
    /// no visitor has come.
    fn correct_rate(&mut self, seconds: f64) {
        let evicts = self.samples.last().is_some_and(|sample| sample.evicted_keys > self.samples[0].evicted_keys);
        if evicts || self.plan.parameters.visitor.is_some_and(|visitor| seconds >= visitor.after) {
            self.pacer = None;
        }
        if let (Some(pacer), Some(load)) = (&mut self.pacer, self.loads.last())
            && let Some(corrected) = pacer.look(self.rate.get(), load)
        {
            self.rate.set(corrected);
        }
    }

    /// Prints the cycles that are complete now, and returns whether there are as many as the plan wants.
    fn has_its_cycles(&mut self) -> Result<bool> {
        let now = unix_time()?;
        let mut complete = EvictionCycle::all(&self.samples);
        complete.retain(|cycle| now - cycle.end >= FINAL);
        for cycle in complete.iter().skip(self.printed) {
            self.printed += 1;
            let (seconds, keys) = (cycle.end - cycle.start, count(cycle.evicted_keys as f64));
            let evicted = format!("{keys} keys evicted in {seconds:.1} s at most");
            self.progress.print(&format!("cycle {}        {evicted}", self.printed));
        }
        Ok(self.plan.parameters.cycles.is_some_and(|enough| complete.len() >= enough))
    }
}

fn start(visitor: &Visitor, server: &Redis, begun: f64) -> Result<Owned> {
    let felt = format!("{:.0}", (begun + visitor.after) * 1e3);
    let arguments = [&server.name(), &felt, &visitor.spread.to_string()];
    Owned::start(Command::new("bash").args(["-e", "-c", visitor.script, "bash"]).args(arguments))
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
    remedy: TriedRemedy,
    /// Watch it with evictscope (needs root), and print what that says beside what was seen
    #[arg(long)]
    pub agent: bool,
}

/// Runs the scenario, watched by `agent`.
pub fn run(arguments: &Arguments, agent: Option<PathBuf>) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let cores = Cores::split()?;
    let (scenario, remedy) = (arguments.scenario, arguments.remedy);
    let is_remedy = scenario == Scenario::Remedy;
    let (cause, changes) = remedy.row();
    let parameters = if is_remedy { cause } else { scenario }.parameters();
    let mut plan = RunPlan { name: name_of(&scenario), parameters, rate: arguments.rate, agent };
    plan.parameters.cycles = arguments.cycles.or(parameters.cycles);
    let carry_out = |plan: &RunPlan| -> Result<Finished> {
        let finished = carry_out(plan, cores.as_ref(), &interrupted)?;
        println!("\n{}: {}", plan.name, summary::outcome(&finished));
        if let Some(testimony) = &finished.testimony {
            println!("{}", beside(&finished, testimony));
        }
        Ok(finished)
    };
    let without = carry_out(&plan)?;
    if !is_remedy {
        return Ok(());
    }

    // As long as the run without it, however soon that had its cycles.
    plan.parameters.seconds = without.seconds;
    plan.parameters.cycles = None;
    let (key_bytes, rate) = (without.measured.key_bytes, without.rate);
    plan.rate = Some(rate);
    remedy.apply(&mut plan.parameters, key_bytes, rate);
    for (name, options) in changes {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        plan.name = format!("remedy-{name}");
        plan.parameters.remedy = options;
        let with = carry_out(&plan)?;
        if let Some(agent) = &plan.agent {
            println!("{name}: {}", compared(agent, &without, &with)?);
        }
    }
    Ok(())
}

/// Makes one complete cycle, watched by the agent.
pub fn one_cycle(agent: PathBuf, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = Cores::split()?;
    let mut parameters = Scenario::Burst.parameters();
    parameters.cycles = Some(1);
    let plan = RunPlan { name: name_of(&Scenario::Burst), parameters, rate: None, agent: Some(agent) };
    carry_out(&plan, cores.as_ref(), interrupted)
}

/// Returns what `evictscope compare` says about the first records of two runs.
fn compared(agent: &Path, without: &Finished, with: &Finished) -> Result<String> {
    let Some((before, after)) = without.records.first().zip(with.records.first()) else {
        return Ok("nothing to compare, because one of the two runs left no record".to_owned());
    };
    process::answer_of(Command::new(agent).arg("compare").args([before, after]))
}
