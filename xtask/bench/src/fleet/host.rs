//! The one real host: its servers, what they have to do, and its agent.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Result;
use evictscope_testkit::{
    agent::{Agent, Program},
    port::free_port,
    redis::Redis,
};

use crate::{exporters::Exporter, own_servers::OwnServers};

/// The limit of each server, and the load that exceeds it: the values are 2 MB, and the server and its keys come on
/// top.
const MAXMEMORY: &str = "2mb";
const KEYS: u32 = 100_000;
const FILL: u32 = 20_000;
/// What one of the servers gets each time.
const SETS: u32 = 2_000;
const PAUSE: Duration = Duration::from_millis(500);

/// A host. It ends when this is dropped.
pub struct Host {
    // Before the servers, so that nobody watches them end.
    agent: Agent,
    servers: Arc<Vec<Redis>>,
    stop: Arc<AtomicBool>,
    load: Option<JoinHandle<()>>,
    _program: OwnServers,
}

impl Host {
    /// Starts the servers and their agent. All of the servers have evicted and go on to evict now and then.
    pub fn start(agent: &Path, servers: usize, go_on: impl Fn() -> Result<()>) -> Result<Self> {
        let program = OwnServers::link()?;
        let mut started = Vec::new();
        for _ in 0..servers {
            go_on()?;
            started.push(program.start(&["--maxmemory", MAXMEMORY])?);
        }
        let agent = Agent::start_command(
            Program::Built(agent.to_owned()).run(),
            free_port()?,
            &["--process-match", &program.matches()],
        )?;
        program.wait_until_watched(&agent, servers, &go_on)?;
        for server in &started {
            go_on()?;
            server.sets_per_second(KEYS, FILL)?;
        }
        let servers = Arc::new(started);
        let stop = Arc::new(AtomicBool::new(false));
        let load = {
            let (servers, stop) = (Arc::clone(&servers), Arc::clone(&stop));
            thread::spawn(move || {
                for server in servers.iter().cycle() {
                    thread::sleep(PAUSE);
                    // A server that has ended is missed by the agent's answer.
                    if stop.load(Ordering::Relaxed) || server.sets_per_second(KEYS, SETS).is_err() {
                        break;
                    }
                }
            })
        };
        Ok(Self {
            agent,
            servers,
            stop,
            load: Some(load),
            _program: program,
        })
    }

    /// Returns the agent's process id.
    pub fn pid(&self) -> u32 {
        self.agent.pid()
    }

    /// Returns what to ask for the agent's answer.
    pub fn exporter(&self) -> Exporter {
        Exporter::agent(self.agent.pid(), self.agent.metrics_url())
    }

    /// Fails with the log of a server that has ended.
    pub fn must_be_alive(&self) -> Result<()> {
        self.servers.iter().try_for_each(Redis::must_be_alive)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.load.take().map(JoinHandle::join);
    }
}
