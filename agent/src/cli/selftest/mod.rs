//! `evictscope selftest`: checks whether a burst of evictions is seen on this host.

mod child;
mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use evictscope_host::{Confinement, LINKS};
use evictscope_records::text;

use super::check::Checklist;
use crate::client::AgentClient;
use crate::client::reading::*;
use crate::terminal::EndSignals;
use child::Tied;
pub use child::{TiedArguments, become_tied};
use server::{ThrowAwayServer, WriteLoad};

/// How long keys are written: most of the time at the limit.
const LASTING: Duration = Duration::from_secs(4);
/// How often the agent and the server are asked.
const INTERVAL: Duration = Duration::from_millis(200);
/// How long the server may take to answer, and the agent to watch it.
const START: Duration = Duration::from_secs(20);
/// How long the load may take to end after its time, on a machine that has little CPU to spare.
const END: Duration = Duration::from_secs(15);
/// How long the agent may take to know what has happened. It reads a server ten times a second.
const SETTLE: Duration = Duration::from_secs(5);
/// The least stall that must be seen, whatever its cause: an eighth of the load's time, because filling the memory is
/// part of it, and the machine may be busy.
const LEAST_STALL: Duration = Duration::from_millis(500);

/// Make a small burst on a throw-away redis-server, and check that it is seen
///
/// Starts the redis-server (or valkey-server) of this host on a free loopback port, and an agent that watches only it;
/// writes keys for 4 s, so that it evicts all the time; and compares what the agent says with the server's own INFO.
/// Takes about 10 s, up to two CPUs and 100 MiB, and ends what it started. Needs root, as `run` does. No other server
/// is touched. An agent that already runs here sees the throw-away server, too.
///
/// Exit code 0 only if everything was seen; each line that fails says what to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The server's program [default: redis-server, else valkey-server, in PATH]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut checklist = Checklist::default();
    if may_attach(&mut checklist) {
        let tested = EndSignals::listen().and_then(|ending| {
            // The children are tied to the main thread.
            test(arguments.server.as_deref(), &Waiting(ending), &mut checklist)
        });
        if let Err(error) = tested {
            checklist.fail("selftest", &format!("{error:#}"));
        }
    }
    Ok(checklist
        .end("A burst of evictions is seen on this host.", "Could not confirm that evictions are seen on this host"))
}

/// Checks the capabilities. Returns whether it is worth starting an agent.
fn may_attach(checklist: &mut Checklist) -> bool {
    let confinement = Confinement::of_process();
    let has_all = confinement.lacks(LINKS).is_none();
    if !has_all {
        checklist.fail("capabilities", &confinement.lacks_links(LINKS));
    }
    has_all
}

/// Waits, unless the user or the system wants this process to end.
struct Waiting(EndSignals);

impl Waiting {
    fn pause(&self) -> anyhow::Result<()> {
        ensure!(
            !self.0.wait_until(Instant::now() + INTERVAL),
            "interrupted; the server and the agent that it started have ended"
        );
        Ok(())
    }

    /// Repeats `attempt` until it has an answer.
    fn within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = attempt()? {
                return Ok(answer);
            }
            ensure!(begun.elapsed() <= limit, "{what}: did not happen within {} s", limit.as_secs());
            self.pause()?;
        }
    }
}

fn test(named: Option<&Path>, waiting: &Waiting, checklist: &mut Checklist) -> anyhow::Result<()> {
    let program = server::find(named)?;
    // No other server has this name, and the agent looks for nothing else.
    let name = format!("evictscope-selftest-{}", std::process::id());
    // Dropped last. Nobody else may read it.
    let directory = (tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir())
        .context("cannot make a directory: TMPDIR can name another place")?;

    let mut server = ThrowAwayServer::start(&program, &name, directory.path())?;
    let what = format!("{} answers", program.display());
    let described = waiting.within(START, &what, || server.describe())?;
    checklist.ok("server", &format!("{}, {described}", program.display()));

    let mut watching = Watching::start(&name, &server, directory.path())?;
    let what = "the agent watches the server";
    let first = waiting.within(START, what, || watching.reading())?;
    let Some(phase) = first.phase() else {
        let program = program.display();
        bail!("its evicting calls cannot be seen: `evictscope inspect {program}` says why");
    };
    checklist.ok("agent", &format!("watches it; its phase is {phase}"));

    let load = WriteLoad::start(server.address(), LASTING)?;
    let mut saturated = None;
    let begun = Instant::now();
    while !load.has_ended() {
        if begun.elapsed() > LASTING + END {
            bail!("the load does not end: the host has no CPU to spare, try again when it has");
        }
        waiting.pause()?;
        let reading = watching.reading()?;
        if reading.is_some_and(|reading| reading.phase() == Some("saturated")) {
            saturated = saturated.or(Some(begun.elapsed()));
        }
    }
    load.end()?;

    let (seen, evicted) = watching.settled(&mut server, waiting)?;
    report_seen(checklist, &seen, evicted, saturated);
    Ok(())
}

/// An agent that watches nothing but the throw-away server.
struct Watching {
    process: Tied,
    agent: AgentClient,
    label: String,
}

impl Watching {
    fn start(name: &str, server: &ThrowAwayServer, directory: &Path) -> anyhow::Result<Self> {
        let port = server::free_port()?;
        let options = [
            "run".to_owned(),
            format!("--listen=127.0.0.1:{port}"),
            // It must not read the configuration of this host's service.
            "--config=/dev/null".to_owned(),
            format!("--process-match=^{name}$"),
            // Its records go with the directory.
            format!("--state-dir={}", directory.join("state").display()),
            // Each evicting call is counted and timed, whatever that costs the throw-away server.
            "--probe-mode=evicting-only".to_owned(),
        ];
        Ok(Self {
            process: Tied::start("evictscope", &std::env::current_exe()?, &options, directory)?,
            agent: AgentClient::on_loopback(port)?,
            label: server.label(),
        })
    }

    /// Returns what the agent says of the server; `None` until it is ready and watches the server.
    fn reading(&mut self) -> anyhow::Result<Option<ServerReading>> {
        self.process.must_run()?;
        Ok(self.agent.reading().ok().and_then(|mut reading| reading.servers.remove(&self.label)))
    }

    /// Waits until the agent has read all that has happened. Returns what it then says, and how many keys the server
    /// has evicted. `INFO` itself may evict some, so the two need not agree at once.
    fn settled(&mut self, server: &mut ThrowAwayServer, waiting: &Waiting) -> anyhow::Result<(ServerReading, u64)> {
        let begun = Instant::now();
        loop {
            let evicted = server.evicted_keys()?;
            waiting.pause()?;
            let seen = self.reading()?.context("the agent has lost the server")?;
            if seen.get(EVICTED_KEYS) == Some(evicted as f64) || begun.elapsed() > SETTLE {
                return Ok((seen, evicted));
            }
        }
    }
}

/// Reports what was seen of the burst. `evicted` is the server's own count of evicted keys, and `saturated` how long
/// after the load's start that phase was seen.
fn report_seen(checklist: &mut Checklist, seen: &ServerReading, evicted: u64, saturated: Option<Duration>) {
    let advice = "please report this, with the output of `evictscope inspect` about that program";
    let known = |value: Option<f64>| text::or_unknown(value, |value| format!("{value}"));
    let [calls, seconds] = [CALLS, CALL_SECONDS].map(|metric| known(seen.get(metric)));
    let longest = text::or_unknown(seen.get(LONGEST_CALL), text::seconds);
    let detail = format!("{calls} evicting calls were timed, {seconds} s in all; the longest took {longest}");
    match seen.get(CALLS) {
        Some(calls) if calls > 0.0 => checklist.ok("calls", &detail),
        _ => checklist.fail("calls", &format!("no evicting call was seen; {advice}")),
    }

    match saturated {
        Some(after) => {
            let detail = format!("saturated {:.1} s after the load began, at the latest", after.as_secs_f64());
            checklist.ok("phase", &detail);
        }
        None => checklist.fail("phase", &format!("saturated was never seen; {advice}")),
    }

    let least = LEAST_STALL.as_secs_f64();
    match seen.get(STALLED) {
        Some(stalled) if stalled >= least => checklist.ok("stall", &format!("clients were stalled for {stalled:.1} s")),
        stalled => checklist.fail(
            "stall",
            &format!(
                "{} s of stall were seen, where {least} s were expected at least. On a busy host, try again when it has a \
                 CPU to spare; otherwise {advice}",
                known(stalled)
            ),
        ),
    }

    match seen.get(EVICTED_KEYS) {
        Some(keys) if keys == evicted as f64 && evicted > 0 => {
            checklist.ok("evicted keys", &format!("{evicted}, the same as INFO says"));
        }
        keys => checklist.fail("evicted keys", &format!("{}, where INFO says {evicted}; {advice}", known(keys))),
    }
}
