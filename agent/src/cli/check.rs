//! `evictscope check`: checks whether `run` would work on this host, and if not, says what to do.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use evictscope_host::{
    Confinement, ContainerName, DEFAULT_PATTERN, Executable, LINKS, Matcher, OTHERS, Scanner,
    ServerProcess, breakpoints, capability_names as names, root_of,
};
use evictscope_probes::{OLDER_KERNELS, Ports, Probes, SocketIterator};
use rustix::system::uname;

use super::checklist::Checklist;
use crate::planning::{Subject, is_usable};
use crate::profile;
use crate::watch::privileges::to_attach;

/// The oldest kernel that has what the programs use: cookies of uprobes (`bpf_get_attach_cookie`).
const OLDEST_KERNEL: (u32, u32) = (5, 15);

/// Check whether `run` would work on this host: kernel, BPF, uprobes, capabilities, servers
///
/// Exit code 0 only if it would; each line that fails says what to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// Regular expression: a process whose command name, executable's name or argument 0 it
    /// matches is a server (sentinels and forked children never are)
    #[arg(long, value_name = "REGEX", default_value = DEFAULT_PATTERN)]
    process_match: Matcher,
}

/// Runs every check, and prints a line for each.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut checklist = Checklist::default();
    if host(&mut checklist) {
        programs(&mut checklist);
    } else {
        checklist.note("BPF", "not tried without that capability");
    }
    servers(&mut checklist, Scanner::new(arguments.process_match));
    Ok(checklist.end(
        "`evictscope run` will work here.",
        "`evictscope run` will not work here",
    ))
}

/// Checks the host without trying anything. Returns whether it is worth trying to attach probes.
pub fn host(checklist: &mut Checklist) -> bool {
    architecture(checklist);
    kernel(checklist);
    capability(checklist)
}

fn architecture(checklist: &mut Checklist) {
    match std::env::consts::ARCH {
        "x86_64" => checklist.ok("architecture", "x86-64"),
        other => {
            let detail = format!("{other}; evictscope runs on x86-64 only");
            checklist.fail("architecture", &detail);
        }
    }
}

fn kernel(checklist: &mut Checklist) {
    let uname = uname();
    let release = uname.release().to_string_lossy();
    let (oldest_major, oldest_minor) = OLDEST_KERNEL;
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    match numbers.next().zip(numbers.next()) {
        Some(version) if version >= OLDEST_KERNEL => checklist.ok("kernel", &release),
        Some(_) => {
            let advice = format!("boot {oldest_major}.{oldest_minor} or newer");
            checklist.fail("kernel", &format!("{release} is too old; {advice}"));
        }
        None => {
            let detail = format!("{release}: its version cannot be read from that");
            checklist.note("kernel", &detail);
        }
    }
}

/// Checks the capabilities. Returns whether it is worth trying to attach probes.
fn capability(checklist: &mut Checklist) -> bool {
    let confinement = Confinement::of_process();
    let Some(held) = confinement.relevant() else {
        checklist.note("capabilities", "cannot be read");
        return true;
    };
    if confinement.lacks(LINKS).is_some() {
        checklist.fail("capabilities", &confinement.lacks_links(LINKS));
        return false;
    }
    checklist.ok("capabilities", &names(held));
    if let Some(why) = confinement.lacks(OTHERS) {
        let what = format!("servers of other users cannot be watched: {why}");
        checklist.note("capabilities", &what);
    }
    true
}

fn programs(checklist: &mut Checklist) {
    let (probes, costs) = match Probes::load_and_calibrate(None) {
        Ok(loaded) => loaded,
        Err(error) => return checklist.fail("BPF", &format!("{error:#}")),
    };
    checklist.ok(
        "BPF",
        &format!(
            "the kernel accepts the programs and attaches probes; one hit of the entry probe \
             costs {:.0} ns, of the return probe {:.0} ns more, an evicting call {:.0} ns, and \
             each hit {:.0} ns more where the kernel has to single-step the instruction",
            costs.enter_ns, costs.return_ns, costs.goal_and_done_ns, costs.single_step_ns
        ),
    );
    let needed = names(to_attach(&probes) | OTHERS);
    match probes.has_multi_links() {
        true => {
            let detail = format!("{needed}, as it has uprobe_multi links");
            checklist.ok("needed on this kernel", &detail);
        }
        false => {
            let detail = format!(
                "{needed}, as it attaches by perf events (uprobe_multi links came with Linux 6.6). \
                 {OLDER_KERNELS}"
            );
            checklist.note("needed on this kernel", &detail);
        }
    }
    match profile::check(to_attach(&probes) | OTHERS) {
        Ok(()) => checklist.ok("profiles", "the kernel lets the agent sample a main thread"),
        Err(why) => {
            let detail = format!("{}. Everything else works without profiles", why.0);
            checklist.note("profiles", &detail);
        }
    }
    match sockets() {
        Ok(()) => checklist.ok("sockets", "the kernel shows which requests are unread"),
        Err(why) => {
            let lost = "how long clients wait cannot be seen. Everything else works";
            checklist.note("sockets", &format!("{why:#}: {lost}"));
        }
    }
}

/// Looks for an unread request in this very process.
fn sockets() -> anyhow::Result<()> {
    let iterator = SocketIterator::load()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    let request = *b"PING\r\n";
    client.write_all(&request)?;
    // Waits until the request is there; it stays unread.
    server.set_read_timeout(Some(Duration::from_secs(1)))?;
    server.peek(&mut [0; 1])?;
    let look = iterator.look(std::process::id(), &mut Ports::default())?;
    let mut unread = look.unread.iter();
    anyhow::ensure!(
        unread.any(|one| one.bytes as usize == request.len()),
        "an unread request is not seen; please report this, with `uname -r`"
    );
    Ok(())
}

fn servers(checklist: &mut Checklist, mut scanner: Scanner) {
    let scan = match scanner.scan() {
        Ok(scan) => scan,
        Err(error) => return checklist.fail("servers", &error.to_string()),
    };
    if scan.servers.is_empty() && scan.hidden.is_empty() {
        let detail = "none runs here now; `run` will find those that start later";
        checklist.note("servers", detail);
    }
    for server in &scan.servers {
        let pid = server.identity.pid;
        let container = container(server).map(|name| format!(", container {name}"));
        let container = container.unwrap_or_default();
        let what = format!("server {} (pid {pid}{container})", server.name);
        match inspect(server) {
            Ok(detail) => checklist.ok(&what, &detail),
            Err(error) => checklist.note(&what, &format!("will not be watched: {error:#}")),
        }
    }
    for pid in scan.starting {
        let what = format!("pid {pid}");
        checklist.note(&what, "has just started and does not listen yet");
    }
    for hidden in scan.hidden {
        let what = format!("pid {} of user {}", hidden.pid, hidden.uid);
        match hidden.is_denied {
            true => checklist.fail(&what, &hidden.why),
            false => checklist.note(&what, &format!("will not be watched: {}", hidden.why)),
        }
    }
}

/// Returns the name of a server's container, or the first digits of its id.
fn container(server: &ServerProcess) -> Option<String> {
    let name = ContainerName::of(server.identity.pid, server.container.id.as_deref()?);
    name.map(|container| container.name)
        .or_else(|| server.container.short_id().map(str::to_owned))
}

/// Describes how much of one server can be seen.
fn inspect(server: &ServerProcess) -> anyhow::Result<String> {
    let executable = Executable::open(&server.exe_proc_path)?;
    let subject = Subject {
        executable: &executable,
        exe: &server.exe,
        root: &root_of(server.identity.pid),
        debug_dirs: &[],
    };
    let plan = subject.plan(None)?.plan;
    is_usable(&plan)?;
    let product = plan.identity.product.unwrap_or("unknown product");
    let version = plan.identity.version.as_deref();
    let version = version.unwrap_or("of unknown version");
    let seen = match plan.not_found.as_slice() {
        [] => "everything can be seen".to_owned(),
        not_found => {
            let items = not_found.iter().map(|missing| missing.item.to_string());
            let (items, pid) = (items.collect::<Vec<_>>().join(", "), server.identity.pid);
            format!("not everything can be seen ({items}); `evictscope inspect {pid}` says why")
        }
    };
    let exe = server.exe.display();
    let left = match breakpoints(server.identity.pid, &executable)?.len() {
        0 => String::new(),
        count => format!(
            "; {count} breakpoints are in its code: of an agent that runs, of another tool, or left by one that was killed"
        ),
    };
    Ok(format!("{product} {version}, {exe}: {seen}{left}"))
}
