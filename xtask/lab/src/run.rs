//! One run: the server, the load, the recorder, and the end of all three.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use evictscope_testkit::{cores::Cores, port::port_for_later, progress::Progress, redis::Redis};

use crate::{
    clock::Clock,
    finished::Finished,
    observer::Observer,
    own_core::OwnCore,
    plan::Plan,
    prepare::{prepare, start_server},
    record::{Line, Record, Run},
    summary,
    threads::Threads,
    witness::Witness,
};

/// How often the run looks whether something has ended.
const LOOK: Duration = Duration::from_millis(200);

/// How long after its last eviction a cycle is complete for good, in seconds. A backlog that is worked off makes
/// memory swell once more, and a record that ended just then would not show the reclaim.
const FINAL: f64 = 5.0;

/// An observer of a run, through the agent that watches it.
pub trait Onlooker {
    /// Begins to observe. The server has just started, and all that this thread starts runs beside it on the other
    /// cores. The agent will listen on this loopback port once the load begins.
    fn come(&mut self, agent_port: u16) -> Result<()>;

    /// Judges the run. The load has ended, but the server and the agent, which is the process `agent`, are still
    /// there.
    fn ask(&mut self, server: &Redis, agent: u32, interrupted: &AtomicBool) -> Result<()>;
}

/// Makes a run on `cores`, and prints each cycle when it is complete. Server and clients have ended when it returns.
pub fn carry_out(
    plan: &Plan,
    cores: Option<&Cores>,
    mut onlooker: Option<&mut dyn Onlooker>,
    interrupted: &AtomicBool,
) -> Result<Finished> {
    let clock = Clock::new();
    let server = start_server(&plan.parameters, cores)?;
    let agent_port = port_for_later()?;
    if let Some(onlooker) = &mut onlooker {
        onlooker.come(agent_port)?;
    }
    let progress = Progress::start(&plan.name);
    let prepared = prepare(plan, server.port(), clock, &progress, interrupted);
    // Where the server has ended, that is the better reason.
    server.must_be_alive()?;
    let (generator, measured) = prepared?;

    let run = Run {
        at: clock.now(),
        scenario: plan.name.clone(),
        pid: server.pid(),
        port: server.port(),
        cores: cores.cloned(),
        measured,
        parameters: plan.parameters.clone(),
    };
    let mut observer = Observer::new(Record::create(&plan.name, run.at)?);
    observer.take(&Line::Run(run.clone()))?;
    progress.print(&summary::heading(&run, observer.path()));
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    let agent = plan.agent.as_ref();
    let mut witness = agent
        .map(|agent| Witness::start(agent, agent_port, &server))
        .transpose()?;
    if let Some(witness) = &witness {
        progress.print(&witness.heading());
    }

    let (sender, lines) = mpsc::channel();
    let load = Threads::start(generator, &run, sender, clock)?;
    let mut own_core = OwnCore::begin(&server)?;
    let watched = watch(
        plan,
        &load,
        &lines,
        &mut observer,
        Watched {
            server: &server,
            witness: witness.as_mut(),
            own_core: &mut own_core,
        },
        &progress,
        interrupted,
    );
    // The load still goes on here, because memory also falls when the clients leave.
    let testimony = match (&watched, &mut witness) {
        (Ok(()), Some(witness)) if !is_interrupted() => Some(witness.testify(&server)).transpose(),
        _ => Ok(None),
    };
    let ended = load.end();
    progress.finish();
    watched?;
    ended?;
    let testimony = testimony?;
    let asked = match (onlooker, &witness) {
        (Some(onlooker), Some(witness)) if !is_interrupted() => {
            onlooker.ask(&server, witness.pid(), interrupted)
        }
        _ => Ok(()),
    };
    drop(witness);
    // The lines since the last look.
    for line in lines.try_iter() {
        observer.take(&line)?;
    }
    let outcome = observer.outcome(clock.now(), is_interrupted(), own_core.longest_wait());
    observer.take(&Line::Result(outcome.clone()))?;
    Ok(Finished {
        run,
        outcome,
        testimony,
        onlooker: asked,
    })
}

/// The server, and the agent that may watch it.
struct Watched<'a> {
    server: &'a Redis,
    witness: Option<&'a mut Witness>,
    own_core: &'a mut OwnCore,
}

/// Records until the plan is fulfilled.
fn watch(
    plan: &Plan,
    load: &Threads,
    lines: &Receiver<Line>,
    observer: &mut Observer,
    mut watched: Watched<'_>,
    progress: &Progress,
    interrupted: &AtomicBool,
) -> Result<()> {
    let begun = Instant::now();
    let mut printed = 0;
    while begun.elapsed() < plan.length && !interrupted.load(Ordering::Relaxed) {
        let line = match lines.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        observer.take(&line)?;
        if !matches!(line, Line::Second(_)) {
            continue;
        }
        progress.show(observer.status());
        progress.sign_of_life();
        watched.server.must_be_alive()?;
        watched.own_core.look(watched.server)?;
        if load.broken() {
            break;
        }
        if let Some(witness) = &mut watched.witness
            && let Some(phase) = witness.new_phase(watched.server)?
        {
            let seconds = begun.elapsed().as_secs_f64();
            progress.print(&format!("{seconds:>6.1} s  evictscope: {phase}"));
        }
        let cycles = observer.cycles();
        let complete: Vec<_> = cycles.iter().filter(|cycle| cycle.complete).collect();
        for (number, cycle) in complete.iter().enumerate().skip(printed) {
            if number == 0 {
                progress.print(summary::CYCLES_HEADING);
            }
            progress.print(&summary::cycle(number + 1, cycle));
        }
        printed = complete.len();
        let now = load.clock.now();
        let final_ones = complete
            .iter()
            .filter(|cycle| cycle.stands_alone() && now - cycle.end >= FINAL);
        if plan
            .cycles
            .is_some_and(|enough| final_ones.count() >= enough)
        {
            break;
        }
    }
    Ok(())
}
