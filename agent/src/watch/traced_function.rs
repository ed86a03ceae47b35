//! Tests the whole way from the list of traced functions to the series: a function that only tests
//! trace is planned, attached to and counted, and its hits are exported, though no other code knows of it.

#[path = "../../plan/tests/made_up/mod.rs"]
mod made_up;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use evictscope_host::{Container, Executable, ProcessHandle, ProcessIdentity, ServerProcess, Words, load_bias};
use evictscope_plan::{EVICTION_CALL, plan_functions};
use evictscope_probes::{Attachment, LinkKeeper, PlannedServer, Probes};
use evictscope_records::NoProfile;
use evictscope_telemetry::{HitCosts, ProbeMode, STALL_THRESHOLD};
use evictscope_testkit::process::{self, Owned};
use evictscope_web::{Requests, families};
use prometheus::TextEncoder;

use super::endings::{Endings, Fate};
use super::probing::Probing;
use super::reading::{ServerReader, Sockets};
use super::recorder::{Subject, Surroundings};
use super::watched::{Sources, Watched};
use made_up::MADE_UP;

/// How often the program calls the function for each line that it reads.
const CALLS: u64 = 1_000;

#[test]
#[ignore = "needs root and BPF"]
fn a_second_traced_function_is_counted_and_exported() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let exe = directory.path().join("made-up");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plan/tests/fixtures/made_up.c");
    process::answer_of(Command::new("cc").args(["-O1", "-rdynamic", "-o"]).args([&exe, &source]))?;
    let (program, mut input, output) = Owned::start_with_pipes(&mut Command::new(&exe))?;
    let mut lines = BufReader::new(output).lines();
    let mut line = || lines.next().context("the program has ended");
    ensure!(line()?? == "ready", "the program did not start");

    let plan = Arc::new(plan_functions(&std::fs::read(&exe)?, None, &[EVICTION_CALL, MADE_UP])?);
    let probes = Probes::load(&LinkKeeper::in_thread()?, None)?;
    let pid = program.pid();
    let identity = ProcessIdentity::read(pid)?;
    let process = ServerProcess {
        identity,
        handle: Arc::new(ProcessHandle::open(identity)?),
        command: "test".to_owned(),
        exe: exe.clone(),
        exe_proc_path: exe.clone(),
        name: "made-up".to_owned(),
        container: Container::default(),
    };
    let load_bias = load_bias(pid, plan.identity.entry_point)?;
    let reader = ServerReader::new(pid, Words::open(pid)?, &plan, load_bias);
    let executable = Arc::new(Executable::open(&exe)?);
    let none = "a test takes none";
    let subject = Subject { profiler: Err(NoProfile(none.to_owned())), process, executable: executable.clone() };
    let around = Surroundings { keeper: Err(none.to_owned()), requests: Requests::default(), budget: 0.01 };
    let server = PlannedServer { pid, exe: executable, load_bias, plan: plan.clone() };
    let attachment = Attachment::new(&probes, server)?;
    let sources = Sources {
        probing: Probing::new(plan, attachment, HitCosts::DOCUMENTED, "1%".parse()?),
        reader,
        sockets: Sockets::new(pid, None),
        fate: Fate::of(pid, &Endings::default()),
    };
    let mut watched = Watched::new("made-up", subject, around, sources, STALL_THRESHOLD);
    watched.begin(ProbeMode::EveryCall, None)?;
    for _ in 0..2 {
        input.write_all(b"\n")?;
        line()??;
    }
    watched.read()?;

    let calls = watched.state.counted.calls.get(1).context("not read")?;
    ensure!(calls.inner.count() == 2 * CALLS, "{calls:?}");
    ensure!(calls.lost_exits == 0, "{calls:?}");
    let evictions = watched.state.eviction().inner.count();
    ensure!(evictions == 0, "{evictions} evicting calls");
    let text = TextEncoder::new().encode_to_string(&families(&[Arc::new(watched.exported())]))?;
    for probe in ["made_up_enter", "made_up_end"] {
        let series = format!("evictscope_probe_hits_total{{server=\"made-up\",probe=\"{probe}\"}} {}\n", 2 * CALLS);
        ensure!(text.contains(&series), "{series} is not in {text}");
    }
    drop(watched);
    probes.finish()?;
    Ok(())
}
