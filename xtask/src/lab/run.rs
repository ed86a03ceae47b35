//! One run: the server, the load, the recorder, and the end of them all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use super::{
    clock::Clock,
    cores::Cores,
    generator::Generator,
    info,
    observer::{LOAD_BEGINS, LOAD_ENDS, Observer, STALL_BEGINS, STALL_ENDS},
    own_core::OwnCore,
    prepare::{Ready, prepare, start_server},
    record::{Event, Line, Outcome, Record, Run},
    scenario::Parameters,
    schedule::Pace,
    stall::Stall,
    summary,
    witness::{Testimony, Witness},
};
use crate::{
    agent::Program,
    process::Progress,
    redis::{Server, port_for_later},
};

/// How often it is looked whether something has ended.
const LOOK: Duration = Duration::from_millis(200);

/// How long after its last eviction a cycle is complete for good, in seconds: a backlog that is worked
/// off makes memory swell once more, and a record that ends just then would not show its reclaim.
const FINAL: f64 = 5.0;

/// What is to be run.
pub struct Plan {
    /// The name of the record.
    pub name: String,
    /// What is asked of the server.
    pub parameters: Parameters,
    /// Requests a second, where they are not to be a share of the measured capacity.
    pub rate: Option<f64>,
    /// How long the load lasts at most.
    pub length: Duration,
    /// How many complete cycles are enough.
    pub cycles: Option<usize>,
    /// The agent that is to watch it.
    pub agent: Option<Program>,
}

/// Others who look at a run with an agent, through it.
pub trait Onlooker {
    /// The server has just started, and this thread is on the lab's core, as is all that it starts.
    /// The agent will listen on this loopback port once the load begins.
    fn come(&mut self, agent_port: u16) -> Result<()>;

    /// The load has ended, and the agent has said what it saw; it, the process `agent`, and the server
    /// are still there.
    fn ask(&mut self, server: &Server, agent: u32, interrupted: &AtomicBool) -> Result<()>;
}

/// What came of it.
pub struct Finished {
    /// What was run.
    pub run: Run,
    /// What the record shows.
    pub outcome: Outcome,
    /// What the agent says, if there was one.
    pub testimony: Option<Testimony>,
    /// What the onlooker says, if there was one.
    pub onlooker: Result<()>,
}

/// Runs it on `cores`, and prints each cycle as it is complete. Server and clients have ended when
/// it returns.
pub fn run(
    plan: &Plan,
    cores: Option<Cores>,
    mut onlooker: Option<&mut dyn Onlooker>,
    interrupted: &AtomicBool,
) -> Result<Finished> {
    let clock = Clock::new();
    let mut server = start_server(&plan.parameters, cores)?;
    let agent_port = port_for_later()?;
    if let Some(onlooker) = &mut onlooker {
        onlooker.come(agent_port)?;
    }
    let progress = Progress::start(&plan.name);
    let prepared = prepare(plan, server.port(), clock, &progress, interrupted);
    // That the server has ended is the better reason.
    server.must_be_alive()?;
    let Ready {
        generator,
        capacity,
        cpu_share,
        rate,
        key_bytes,
    } = prepared?;

    let run = Run {
        at: clock.now(),
        scenario: plan.name.clone(),
        pid: server.pid(),
        port: server.port(),
        cores,
        capacity,
        cpu_share,
        rate,
        key_bytes,
        parameters: plan.parameters.clone(),
    };
    let mut observer = Observer::new(Record::create(&plan.name, run.at)?);
    observer.take(&Line::Run(run.clone()))?;
    progress.print(&summary::heading(&run, observer.path()));
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    let agent = plan.agent.as_ref();
    let mut witness = agent
        .map(|agent| Witness::start(agent, agent_port, &server, is_interrupted))
        .transpose()?;
    if let Some(witness) = &witness {
        progress.print(&witness.heading());
    }

    let (sender, lines) = mpsc::channel();
    let mut load = Load {
        stop: Arc::new(AtomicBool::new(false)),
        threads: Vec::new(),
        lines: sender,
        clock,
    };
    load.start(generator, &run)?;
    let mut own_core = OwnCore::begin(&server)?;
    let watched = watch(
        plan,
        &load,
        &lines,
        &mut observer,
        Watched {
            server: &mut server,
            witness: witness.as_mut(),
            own_core: &mut own_core,
        },
        &progress,
        interrupted,
    );
    // While the load goes on: what falls when the clients leave is no reclaim.
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
    // What came after the last look.
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

/// The threads of a load. They end when it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
    lines: Sender<Line>,
    clock: Clock,
}

impl Load {
    fn start(&mut self, mut generator: Generator, run: &Run) -> Result<()> {
        self.threads
            .extend(info::start(run.port, self.clock, &self.stop, &self.lines)?);
        self.event(LOAD_BEGINS)?;
        let (stop, lines, pace) = (
            Arc::clone(&self.stop),
            self.lines.clone(),
            Pace::Rate(run.rate),
        );
        self.threads.push(thread::spawn(move || {
            // The receiver outlives the load.
            let tell = |line| drop(lines.send(line));
            generator.run(pace, tell, |_| stop.load(Ordering::Relaxed))
        }));
        if let Some(stall) = run.parameters.stall {
            self.stall(stall, run.pid);
        }
        Ok(())
    }

    fn stall(&mut self, stall: Stall, pid: u32) {
        let (stop, lines, clock) = (Arc::clone(&self.stop), self.lines.clone(), self.clock);
        self.threads.push(thread::spawn(move || {
            let begins = Instant::now() + Duration::from_secs_f64(stall.after);
            while Instant::now() < begins && !stop.load(Ordering::Relaxed) {
                thread::sleep(begins.saturating_duration_since(Instant::now()).min(LOOK));
            }
            tell(&lines, clock, STALL_BEGINS)?;
            stall.inflict(pid, &stop)?;
            tell(&lines, clock, STALL_ENDS)?;
            // A thread that has ended would end the load.
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
            }
            Ok(())
        }));
    }

    fn event(&self, what: &'static str) -> Result<()> {
        tell(&self.lines, self.clock, what)
    }

    /// Whether a thread has ended, which it does before its time only for an error.
    fn broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads: the first error among them.
    fn end(mut self) -> Result<()> {
        let told = self.event(LOAD_ENDS);
        self.stop_threads().and(told)
    }

    fn stop_threads(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(anyhow!("a thread of the lab panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Whatever failed before has been told.
        let _ = self.stop_threads();
    }
}

fn tell(lines: &Sender<Line>, clock: Clock, what: &'static str) -> Result<()> {
    let at = clock.now();
    lines
        .send(Line::Event(Event { at, what }))
        .map_err(|_| anyhow!("the recorder has ended"))
}

/// The server, and the agent that watches it, if one does.
struct Watched<'a> {
    server: &'a mut Server,
    witness: Option<&'a mut Witness>,
    own_core: &'a mut OwnCore,
}

/// Records until it is enough.
fn watch(
    plan: &Plan,
    load: &Load,
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
