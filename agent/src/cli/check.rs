//! `evictscope check`: tries what `run` does, and says what to do where that fails. `selftest` lists its checks in the
//! same way.

use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evictscope_host::{
    Confinement, ContainerName, OTHERS, Scanner, ServerProcess, breakpoints, capability_names as names, printable,
    security_modules,
};
use evictscope_model::answers::UnwatchedReason;
use evictscope_probes::{Attachment, Coverage, OLDER_KERNELS, Ports, ProbeError, Probed, Probes, SocketIterator};
use evictscope_records::{Store, StoreError, StoreLimits};
use rustix::system::uname;

use super::run::ConfigurationOptions;
use crate::planning::{Failure, Planner};
use crate::watch::Settings;
use crate::watch::loaded::{Loaded, to_attach};
use crate::watch::prepared::Prepared;
use crate::{profile, terminal};

/// Check whether `run` would work on this host, by trying what it does: BPF, uprobes, and each server
///
/// Reads the same configuration as `run`, and takes the same options. For a moment it has probes in itself and in
/// each server. Exit code 0 only if `run` would work; each line that fails says what to do.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    configuration: ConfigurationOptions,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut checklist = Checklist::default();
    // It decides nothing.
    checklist.note("kernel", &uname().release().to_string_lossy());
    let held = Confinement::of_process().relevant().map_or_else(|| "cannot be read".to_owned(), names);
    checklist.note("capabilities", &held);
    for module in security_modules() {
        checklist.note("security module", &module);
    }
    match arguments.configuration.load() {
        Ok((settings, ..)) => try_all(settings, &mut checklist),
        Err(error) => checklist.fail("configuration", &format!("{error:#}")),
    }
    Ok(checklist.end("`evictscope run` will work here.", "`evictscope run` will not work here"))
}

fn try_all(settings: Settings, checklist: &mut Checklist) {
    listen(checklist, &settings);
    records(checklist, &settings);
    let tried = Tried { kernel: programs(checklist), planner: Planner::new(settings.debug_dirs) };
    servers(checklist, Scanner::new(settings.process_match).excluding(settings.exclusions), &tried);
}

/// What servers are tried with.
struct Tried {
    /// The probes, and what looks at sockets; `None` if the kernel does not allow either.
    kernel: Option<(Arc<Probes>, Option<SocketIterator>)>,
    planner: Planner,
}

fn listen(checklist: &mut Checklist, settings: &Settings) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let bound = (runtime.context("cannot start the asynchronous runtime"))
        .and_then(|runtime| runtime.block_on(evictscope_web::bind(settings.listen)));
    match bound {
        Ok(_) => checklist.ok("listen", &settings.listen.to_string()),
        // It runs already.
        Err(error) if is_agent(settings.listen) == Some(true) => checklist.note("listen", &format!("{error:#}")),
        Err(error) => checklist.fail("listen", &format!("{error:#}")),
    }
}

/// Returns whether an agent answers at this address; `None` if nothing does.
fn is_agent(address: SocketAddr) -> Option<bool> {
    const PATIENCE: Duration = Duration::from_secs(1);
    /// What begins a complaint about a request without TLS.
    const ALERT: u8 = 21;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"GET /-/healthy HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // What was read before an error says enough.
    let _ = stream.read_to_end(&mut answer);
    let is_http = answer.starts_with(b"HTTP/") && answer.windows(7).any(|part| part == b"healthy");
    Some(is_http || answer.first() == Some(&ALERT))
}

/// Checks the directory of records, which `run` can do without.
fn records(checklist: &Checklist, settings: &Settings) {
    if settings.keep_records == 0 {
        return checklist.note("records", "--keep-records is 0: none are kept");
    }
    match is_writable(&settings.state_dir) {
        Ok(()) => checklist.ok("records", &format!("kept in {}", settings.state_dir.display())),
        Err(error @ StoreError::InUse(_)) => checklist.note("records", &error.to_string()),
        Err(error) => checklist.note("records", &format!("none would be kept: {error}")),
    }
}

/// Opens the directory as `run` does, if that has been here: what root makes, the service's user cannot write. Else
/// makes another one there or where it would be, and removes that again.
fn is_writable(directory: &Path) -> Result<(), StoreError> {
    if directory.join("lock").exists() {
        return Store::open(directory, StoreLimits::default()).map(drop);
    }
    let above = directory.ancestors().find(|above| above.exists()).unwrap_or(directory);
    let trial = above.join(format!(".evictscope-check-{}", std::process::id()));
    (DirBuilder::new().create(&trial).and_then(|()| std::fs::remove_dir(&trial)))
        .map_err(|error| StoreError::Directory(directory.to_owned(), error))
}

/// Has the kernel load everything, and tries it on this process.
fn programs(checklist: &mut Checklist) -> Option<(Arc<Probes>, Option<SocketIterator>)> {
    let loaded = match Loaded::load(true) {
        Ok(loaded) => loaded,
        Err(error) => {
            checklist.fail("BPF", &format!("{error:#}"));
            return None;
        }
    };
    let costs = loaded.costs;
    checklist.ok(
        "BPF",
        &format!(
            "the kernel accepts the programs and attaches probes; one hit of the entry probe \
             costs {:.0} ns, of the return probe {:.0} ns more, an evicting call {:.0} ns, and \
             each hit {:.0} ns more where the kernel has to single-step the instruction",
            costs.enter_ns, costs.return_ns, costs.goal_and_done_ns, costs.single_step_ns
        ),
    );
    let needed = names(to_attach(&loaded.probes) | OTHERS);
    if loaded.probes.has_multi_links() {
        checklist.ok("needed on this kernel", &format!("{needed}, as it has uprobe_multi links"));
    } else {
        let why = "as it attaches by perf events (uprobe_multi links came with Linux 6.6)";
        checklist.note("needed on this kernel", &format!("{needed}, {why}. {OLDER_KERNELS}"));
    }
    if let Some(why) = Confinement::of_process().lacks(OTHERS) {
        checklist.note("capabilities", &format!("servers of other users cannot be watched: {why}"));
    }
    match profile::check(loaded.sampler) {
        Ok(()) => checklist.ok("profiles", "the kernel lets the agent sample a main thread"),
        Err(why) => checklist.note("profiles", &format!("{}. Everything else works without profiles", why.0)),
    }
    let loaded_iterator = loaded.sockets.map_err(Into::into);
    let sockets = match loaded_iterator.and_then(|iterator| sockets(&iterator).map(|()| iterator)) {
        Ok(iterator) => {
            match &iterator.no_peers {
                None => checklist.ok("sockets", "the kernel shows which requests are unread, and whose they are"),
                Some(why) => checklist.note("sockets", &format!("whose requests are unread cannot be seen: {why}")),
            }
            Some(iterator)
        }
        Err(why) => {
            let lost = "how long clients wait cannot be seen. Everything else works";
            checklist.note("sockets", &format!("{why:#}: {lost}"));
            None
        }
    };
    Some((loaded.probes, sockets))
}

/// Looks for an unread request in this very process.
fn sockets(iterator: &SocketIterator) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    let request = *b"PING\r\n";
    client.write_all(&request)?;
    // Waits until the request is there; it stays unread.
    server.set_read_timeout(Some(Duration::from_secs(1)))?;
    server.peek(&mut [0; 1])?;
    let look = iterator.look(std::process::id(), &mut Ports::default())?;
    anyhow::ensure!(
        look.unread.iter().any(|unread| unread.bytes as usize == request.len()),
        "an unread request is not seen; please report this, with `uname -r`"
    );
    Ok(())
}

/// How long to wait for servers that start, or that a busy machine lets nobody look at, and between two looks.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

fn servers(checklist: &mut Checklist, mut scanner: Scanner, tried: &Tried) {
    let begun = Instant::now();
    let scan = loop {
        match scanner.scan() {
            Ok(scan) if (scan.is_behind || !scan.starting.is_empty()) && begun.elapsed() < PATIENCE => sleep(PAUSE),
            Ok(scan) => break scan,
            Err(error) => return checklist.fail("servers", &error.to_string()),
        }
    };
    if scan.is_behind {
        checklist.note("servers", "this machine is too busy to look at all processes: run `check` again");
    } else if scan.servers.is_empty() && scan.hidden.is_empty() {
        checklist.note("servers", "none runs here now; `run` will find those that start later");
    }
    for process in &scan.servers {
        server(checklist, process, tried);
    }
    for pid in scan.starting {
        checklist.note(&format!("pid {pid}"), "has just started and does not listen yet");
    }
    for hidden in scan.hidden {
        let what = format!("pid {} of user {}", hidden.pid, hidden.uid);
        if hidden.is_denied {
            checklist.fail(&what, &hidden.why)
        } else {
            checklist.note(&what, &format!("will not be watched: {}", hidden.why))
        }
    }
}

/// Tries what `run` does with one server.
fn server(checklist: &mut Checklist, process: &ServerProcess, tried: &Tried) {
    let pid = process.identity.pid;
    let named = ContainerName::of(pid, &process.container);
    let mut of = format!("pid {pid}");
    if let Some(name) = named.as_ref().map(|named| named.name.as_str()).or_else(|| process.container.short_id()) {
        of += &format!(", container {name}");
    }
    let pod = named.and_then(|named| named.pod);
    if let Some(pod) = &pod {
        of += &format!(" of pod {}/{}", pod.namespace, pod.name);
    }
    let what = format!("server {} ({of})", process.name);
    // Taking a probe off would take out what was left there.
    let place = |prepared: &Prepared| match (&tried.kernel, breakpoints(pid, &prepared.server.exe)) {
        (Some((probes, _)), Ok(left)) if left.is_empty() => placed(probes, prepared),
        _ => Ok(()),
    };
    let lower = Prepared::of_lower(process, &tried.planner);
    let prepared = match lower.filter(|lower| place(lower).is_ok()) {
        Some(lower) => Ok((lower, Ok(()))),
        None => Prepared::of(process, &tried.planner).map(|prepared| {
            let trial = place(&prepared);
            (prepared, trial)
        }),
    };
    let (mut prepared, trial) = match prepared {
        Ok(tried) => tried,
        Err(refusal) => {
            return match refusal.0 {
                Some(Failure { reason: UnwatchedReason::Permission, why, .. }) => {
                    checklist.fail(&what, &format!("will not be watched: {why}"))
                }
                Some(Failure { why, .. }) => checklist.note(&what, &format!("will not be watched: {why}")),
                None => checklist.note(&what, "has just ended"),
            };
        }
    };
    let mut lacks = prepared.reader.lacks();
    if let Err(error) = trial {
        lacks.push(format!("its evicting calls and expire cycles cannot be seen: {error}"));
    }
    if let Some((_, Some(sockets))) = &tried.kernel
        && let Err(error) = sockets.look(pid, &mut Ports::default())
    {
        lacks.push(format!("how long its clients wait cannot be seen: {error}"));
    }
    checklist.ok(&what, &seen(process, &prepared, lacks.is_empty()));
    match breakpoints(pid, &prepared.server.exe) {
        Ok(left) if left.is_empty() => {}
        Ok(left) => lacks.push(format!(
            "{} breakpoints are in its code: of an agent that runs, of another tool, or left by one that was killed",
            left.len()
        )),
        Err(error) => lacks.push(format!("its code cannot be read: {error:#}")),
    }
    if let (Some(uid), None) = (&process.container.pod_uid, pod) {
        lacks.push(format!(
            "its pod has the uid {uid}, and no name: neither /proc/1/root nor /var/log/containers shows one"
        ));
    }
    for lacking in lacks {
        checklist.note(&what, &lacking);
    }
}

/// Has the usual probes in a server for a moment.
fn placed(probes: &Arc<Probes>, prepared: &Prepared) -> Result<(), ProbeError> {
    let usual = Coverage { eviction: Probed::Inner, cycles: true };
    let mut attachment = Attachment::new(probes, prepared.server.clone())?;
    attachment.set(usual, prepared.reader.words()).map(drop)
}

/// Describes how much of one server can be seen, if nothing but its plan `may` lack anything.
fn seen(server: &ServerProcess, prepared: &Prepared, may: bool) -> String {
    let plan = &prepared.server.plan;
    let product = plan.identity.product.unwrap_or("unknown product");
    let version = plan.identity.version.as_deref().unwrap_or("of unknown version");
    let seen = match plan.not_found.as_slice() {
        [] if may => "everything can be seen".to_owned(),
        [] => "its plan is complete".to_owned(),
        not_found => {
            let items: Vec<_> = not_found.iter().map(|missing| missing.item.to_string()).collect();
            let (items, pid) = (items.join(", "), server.identity.pid);
            format!("not everything can be seen ({items}); `evictscope inspect {pid}` says why")
        }
    };
    format!("{product} {version}, {}: {seen}", server.exe.display())
}

/// The lines of checks, printed as they come.
#[derive(Default)]
pub struct Checklist {
    failures: usize,
}

impl Checklist {
    pub fn ok(&self, what: &str, detail: &str) {
        line("ok  ", what, detail);
    }

    /// Prints something that is worth knowing.
    pub fn note(&self, what: &str, detail: &str) {
        line("note", what, detail);
    }

    /// Prints that a check failed, and counts it.
    pub fn fail(&mut self, what: &str, detail: &str) {
        self.failures += 1;
        line("FAIL", what, detail);
    }

    /// Ends the list with one of two sentences, and returns the exit code.
    pub fn end(self, well: &str, badly: &str) -> ExitCode {
        if self.failures == 0 {
            say(&format!("\n{well}\n"));
            return ExitCode::SUCCESS;
        }
        say(&format!("\n{badly}: {} failed, see above.\n", self.failures));
        ExitCode::FAILURE
    }
}

fn line(kind: &str, what: &str, detail: &str) {
    say(&format!("{kind}  {}: {}\n", printable(what), printable(detail)));
}

/// Prints what it can: the exit code says the same.
fn say(text: &str) {
    if let Err(error) = terminal::print(text) {
        terminal::note(&format!("evictscope: cannot write to stdout: {error}"));
    }
}
