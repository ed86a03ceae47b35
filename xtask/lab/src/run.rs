//! One run: the server, the load, the recorder, and the end of all three.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use evictscope_testkit::{clock::unix_time, cores::Cores, progress::Progress, redis::Redis};

use crate::{
    expiry::Switch,
    judge::Finished,
    latency,
    observer::Observer,
    pacer::Pacer,
    prepare::{prepare, start_server},
    record::{Line, Run},
    scenario::Plan,
    summary,
    threads::Threads,
    witness::Witness,
};

/// How often the run looks whether something has ended.
const LOOK: Duration = Duration::from_millis(200);

/// How long after its last eviction a cycle is complete for good, in seconds. A backlog that is worked off makes
/// memory swell once more, and a record that ended just then would not show the reclaim.
const FINAL: f64 = 5.0;

/// Makes a run on `cores`, and prints each cycle when it is complete. Server and clients have ended when it returns.
pub fn carry_out(plan: &Plan, cores: Option<&Cores>, interrupted: &AtomicBool) -> Result<Finished> {
    let server = start_server(&plan.parameters, cores)?;
    let progress = Progress::start(&plan.name);
    let prepared = prepare(plan, &server, &progress, interrupted);
    // Where the server has ended, that is the better reason.
    server.must_be_alive()?;
    let prepared = prepared?;
    let measured = prepared.measured;

    let run = Run {
        at: unix_time()?,
        scenario: plan.name.clone(),
        pid: server.pid(),
        port: server.port(),
        cores: cores.cloned(),
        measured,
        parameters: plan.parameters.clone(),
    };
    let mut observer = Observer::new(&run)?;
    progress.print(&summary::heading(&run, observer.path()));
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    // Off while the agent comes, so that it sees each key that expires under load and no other.
    let mut expiry = (plan.measures_expiry)
        .then(|| Switch::off_without_keys(server.port()))
        .transpose()?;
    let agent = plan.agent.as_ref();
    let mut witness = agent
        .map(|agent| Witness::start(agent, &server))
        .transpose()?;
    if let Some(witness) = &witness {
        progress.print(&format!("evictscope     {}", witness.place()));
    }

    if let Some(expiry) = &mut expiry {
        expiry.on()?;
    }
    latency::reset(&server)?;
    let (sender, lines) = mpsc::channel();
    let mut load = Threads::start(prepared, &run, sender)?;
    let mut watch = Watch {
        plan,
        server: &server,
        load: &load,
        lines: &lines,
        progress: &progress,
        witness: witness.as_mut(),
        observer: &mut observer,
        printed: (0, f64::NEG_INFINITY),
        // Where expiry is to fall behind, the server is to have more to do than it can.
        pacer: (plan.rate.is_none() && !plan.measures_expiry)
            .then(|| Pacer::corrects(plan.parameters.busy)),
    };
    let watched = watch.until_fulfilled(is_interrupted);
    let rate = load.rate.get();
    // The load still goes on here, because memory also falls when the clients leave.
    let testimony = match (&watched, &witness) {
        (Ok(()), Some(witness)) if !is_interrupted() => Some(witness.testify(&server)).transpose(),
        _ => Ok(None),
    };
    let ended = load.end();
    let ended_at = unix_time()?;
    let longest_call = latency::longest_evicting_call(&server);
    let expiry = expiry.map(Switch::end);
    progress.finish();
    if let Err(error) = watched.and(ended) {
        // A server that is kept from its CPU for long enough does not answer.
        return Err(match observer.premise(ended_at).disturbance() {
            Some(disturbance) => error.context(format!("disturbed: {disturbance}")),
            None => error,
        });
    }
    let mut testimony = testimony?;
    let longest_call = longest_call?;
    let expiry = expiry.transpose()?;
    if let (Some(testimony), Some(witness)) = (&mut testimony, witness) {
        testimony.records = witness.end(&observer.path().with_extension(""))?;
    }
    // The lines since the last look.
    for line in lines.try_iter() {
        observer.take(line)?;
    }
    Ok(Finished {
        measured,
        outcome: observer.end(ended_at, is_interrupted(), rate, longest_call, expiry)?,
        testimony,
    })
}

/// A run under load, and what was seen of it so far.
struct Watch<'a> {
    plan: &'a Plan,
    server: &'a Redis,
    load: &'a Threads,
    lines: &'a Receiver<Line>,
    progress: &'a Progress,
    witness: Option<&'a mut Witness>,
    observer: &'a mut Observer,
    /// The number of cycles that were printed, and the end of the last one.
    printed: (usize, f64),
    /// What corrects the rate, as long as it does.
    pacer: Option<Pacer>,
}

impl Watch<'_> {
    /// Records until the plan is fulfilled.
    fn until_fulfilled(&mut self, is_interrupted: impl Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < self.plan.length && !is_interrupted() {
            let line = match self.lines.recv_timeout(LOOK) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let is_second = matches!(line, Line::Second(_));
            self.observer.take(line)?;
            self.correct_rate();
            if !is_second {
                continue;
            }
            self.progress.show(self.observer.status());
            self.server.must_be_alive()?;
            if let Some(witness) = &mut self.witness
                && let Some(phase) = witness.new_phase(self.server)?
            {
                let seconds = begun.elapsed().as_secs_f64();
                let line = format!("{seconds:>6.1} s  evictscope: {phase}");
                self.progress.print(&line);
            }
            if self.load.broken() || self.has_its_cycles()? {
                break;
            }
        }
        Ok(())
    }

    /// Corrects the rate, until the server is at its limit.
    fn correct_rate(&mut self) {
        if !self.observer.is_calm() {
            self.pacer = None;
        }
        let (rate, last) = (&self.load.rate, self.observer.last_counts());
        if let (Some(pacer), Some((load, times))) = (&mut self.pacer, last)
            && let Some(corrected) = pacer.look(rate.get(), load, times)
        {
            rate.set(corrected);
        }
    }

    /// Prints the cycles that are complete now, and returns whether there are as many as the plan wants.
    fn has_its_cycles(&mut self) -> Result<bool> {
        let mut complete = self.observer.cycles();
        complete.retain(|cycle| cycle.complete);
        for cycle in &complete {
            let (number, last) = self.printed;
            // A cycle that seemed complete may go on, and is not printed again then.
            if cycle.start < last {
                continue;
            }
            self.progress.print(&summary::cycle(number + 1, cycle));
            self.printed = (number + 1, cycle.end);
        }
        let now = unix_time()?;
        complete.retain(|cycle| cycle.stands_alone() && now - cycle.end >= FINAL);
        Ok((self.plan.cycles).is_some_and(|enough| complete.len() >= enough))
    }
}
