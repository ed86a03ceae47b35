//! `evictscope check`: whether `run` would work on this host, and if not, what to do.

use std::process::ExitCode;

use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};

use crate::host::{
    DEFAULT_PATTERN, Executable, Matcher, Scanner, ServerProcess, find_debug_file, root_of,
};
use crate::probes::Probes;

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

/// The lines of the report.
struct Report {
    failures: usize,
}

impl Report {
    fn ok(&self, what: &str, detail: &str) {
        println!("ok    {what}: {detail}");
    }

    fn note(&self, what: &str, detail: &str) {
        println!("note  {what}: {detail}");
    }

    fn fail(&mut self, what: &str, detail: &str) {
        self.failures += 1;
        println!("FAIL  {what}: {detail}");
    }
}

/// Makes every check, and prints a line for each.
///
/// # Errors
///
/// Never fails: a failed check is a line of the report.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut report = Report { failures: 0 };
    architecture(&mut report);
    kernel(&mut report);
    if capability(&mut report) {
        programs(&mut report);
    } else {
        report.note("BPF", "not tried without that capability");
    }
    servers(&mut report, Scanner::new(arguments.process_match));
    Ok(match report.failures {
        0 => {
            println!("\n`evictscope run` will work here.");
            ExitCode::SUCCESS
        }
        count => {
            println!("\n`evictscope run` will not work here: {count} failed, see above.");
            ExitCode::FAILURE
        }
    })
}

fn architecture(report: &mut Report) {
    match std::env::consts::ARCH {
        "x86_64" => report.ok("architecture", "x86-64"),
        other => {
            let detail = format!("{other}; evictscope runs on x86-64 only");
            report.fail("architecture", &detail);
        }
    }
}

fn kernel(report: &mut Report) {
    let uname = uname();
    let release = uname.release().to_string_lossy();
    let (oldest_major, oldest_minor) = OLDEST_KERNEL;
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    match numbers.next().zip(numbers.next()) {
        Some(version) if version >= OLDEST_KERNEL => report.ok("kernel", &release),
        Some(_) => {
            let advice = format!("boot {oldest_major}.{oldest_minor} or newer");
            report.fail("kernel", &format!("{release} is too old; {advice}"));
        }
        None => {
            let detail = format!("{release}: its version cannot be read from that");
            report.note("kernel", &detail);
        }
    }
}

/// The capabilities that looking into the processes of other users takes.
const OTHERS: [(CapabilitySet, &str); 2] = [
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];

/// Checks the capabilities. Returns whether it is worth trying to attach probes.
fn capability(report: &mut Report) -> bool {
    let held = match capabilities(None) {
        Ok(sets) => sets.effective,
        Err(error) => {
            report.note("capabilities", &format!("cannot be read: {error}"));
            return true;
        }
    };
    let probes = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let what = match held {
        held if held.contains(CapabilitySet::SYS_ADMIN) => "CAP_SYS_ADMIN",
        // Enough on some kernels; attaching will show.
        held if held.contains(probes) => "CAP_BPF and CAP_PERFMON",
        _ => {
            report.fail(
                "capabilities",
                "CAP_SYS_ADMIN is missing, without which the kernel attaches no uprobes; run as root: sudo evictscope check",
            );
            return false;
        }
    };
    report.ok("capabilities", what);
    let missing = OTHERS.iter().filter(|(one, _)| !held.contains(*one));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        let what = format!("{missing} missing: servers of other users cannot be watched");
        report.note("capabilities", &what);
    }
    true
}

fn programs(report: &mut Report) {
    match Probes::load_and_calibrate() {
        Ok((_, costs)) => report.ok(
            "BPF",
            &format!(
                "the kernel accepts the programs and attaches probes; one hit of the entry probe \
                 costs {:.0} ns, of the return probe {:.0} ns more, an evicting call {:.0} ns, and \
                 each hit {:.0} ns more where the kernel has to single-step the instruction",
                costs.enter_ns, costs.return_ns, costs.goal_and_done_ns, costs.single_step_ns
            ),
        ),
        Err(error) => report.fail("BPF", &format!("{error:#}")),
    }
}

fn servers(report: &mut Report, mut scanner: Scanner) {
    let scan = match scanner.scan() {
        Ok(scan) => scan,
        Err(error) => return report.fail("servers", &error.to_string()),
    };
    if scan.servers.is_empty() && scan.hidden.is_empty() {
        let detail = "none runs here now; `run` will find those that start later";
        report.note("servers", detail);
    }
    for server in &scan.servers {
        let what = format!("server {} (pid {})", server.name, server.identity.pid);
        match inspect(server) {
            Ok(detail) => report.ok(&what, &detail),
            Err(error) => report.note(&what, &format!("will not be watched: {error:#}")),
        }
    }
    for pid in scan.starting {
        let what = format!("pid {pid}");
        report.note(&what, "has just started and does not listen yet");
    }
    for hidden in scan.hidden {
        let what = format!("pid {} of user {}", hidden.pid, hidden.uid);
        report.fail(&what, &hidden.why);
    }
}

/// Describes how much of one server can be seen.
fn inspect(server: &ServerProcess) -> anyhow::Result<String> {
    let data = Executable::open(&server.exe_proc_path)?.read()?;
    let root = root_of(server.identity.pid);
    let debug = find_debug_file(&[], &data, &server.exe, &root)?;
    let plan = evictscope_plan::plan(&data, debug.data())?;
    if let Some(why) = plan.unusable_reason() {
        anyhow::bail!("{why}; --process-match says which processes are servers");
    }
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
    Ok(format!("{product} {version}, {exe}: {seen}"))
}
