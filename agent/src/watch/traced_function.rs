//! A test from the list of traced functions to the series: one that only tests trace is planned,
//! attached to, counted and exported, though nothing outside its folder and the list knows of it.

#[path = "../../plan/tests/made_up/mod.rs"]
mod made_up;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use evictscope_plan::{EVICTION_CALL, plan_functions};
use made_up::MADE_UP;
use prometheus::TextEncoder;

use super::publish::exported;
use super::watched::Watched;
use crate::export::families;
use crate::host::{Identity, ServerProcess, memory};
use crate::probes::{Probes, Target};
use crate::telemetry::{HitCosts, ProbeMode};

/// How often the program calls the function for each line that it reads.
const CALLS: u64 = 1_000;

/// A running program, which is killed when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compile(directory: &Path) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plan/tests/fixtures/made_up.c");
    let program = directory.join("made-up");
    let mut command = Command::new("cc");
    let status = command
        .args(["-O1", "-rdynamic", "-o"])
        .args([&program, &source])
        .status()
        .context("cannot run cc")?;
    ensure!(status.success(), "cc: {status}");
    Ok(program)
}

#[test]
#[ignore = "needs root and BPF"]
fn a_second_traced_function_is_counted_and_exported() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let exe = compile(directory.path())?;
    let mut command = Command::new(&exe);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut program = Program(child?);
    let mut said = BufReader::new(program.0.stdout.take().context("no stdout")?).lines();
    let mut line = || said.next().context("the program has ended");
    ensure!(line()?? == "ready", "the program did not start");

    let pid = program.0.id();
    let plan = plan_functions(&std::fs::read(&exe)?, None, &[EVICTION_CALL, MADE_UP])?;
    let load_bias = memory::load_bias(pid, plan.identity.entry_point)?;
    let target = Target {
        pid,
        exe: &exe,
        load_bias,
    };
    let mut probes = Probes::load()?;
    let mode = ProbeMode::EveryCall;
    let attachment = probes.attach(target, &plan, mode)?;
    let process = ServerProcess {
        identity: Identity {
            pid,
            start_time_ticks: 0,
            text_start: 0,
        },
        exe: exe.clone(),
        exe_proc_path: exe.clone(),
        name: "made-up".to_owned(),
    };
    let mut watched = Watched::new(
        process,
        "made-up".to_owned(),
        Arc::new(plan),
        load_bias,
        attachment,
        HitCosts::DOCUMENTED,
        mode,
        None,
    );
    for _ in 0..2 {
        let stdin = program.0.stdin.as_mut().context("no stdin")?;
        stdin.write_all(b"\n")?;
        line()??;
    }
    watched.read(&mut probes);

    let calls = watched.state.calls.get(1).context("not read")?;
    ensure!(calls.inner.count() == 2 * CALLS, "{calls:?}");
    ensure!(calls.lost_exits.count() == 0, "{calls:?}");
    ensure!(
        watched.state.eviction().inner.count() == 0,
        "an eviction call"
    );
    let text = TextEncoder::new().encode_to_string(&families(&[exported(&watched)]))?;
    for probe in ["made_up_enter", "made_up_end"] {
        let series = format!(
            "evictscope_probe_hits_total{{server=\"made-up\",probe=\"{probe}\"}} {}\n",
            2 * CALLS
        );
        ensure!(text.contains(&series), "{series} is not in {text}");
    }
    probes.detach(watched.attachment);
    probes.finish();
    Ok(())
}
