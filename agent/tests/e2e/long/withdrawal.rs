//! A server that does what its plan says it cannot.
//!
//! `fixtures/evict.c` is compiled so that from its second round of calls on it breaks an invariant of its plan. The
//! plan must be withdrawn, and no number that depends on it may stay on /metrics.

use std::path::{Path, PathBuf};

use crate::program::{Program, all_programs, compiling, program_name};
use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::Agent,
    code::Code,
    process,
    wait::{until, until_true},
};

/// Series that depend on the plan.
const RESTING_ON_THE_PLAN: [&str; 5] = [
    "evictscope_eviction_call_duration_seconds",
    "evictscope_eviction_calls_total",
    "evictscope_mem_tofree_bytes",
    "evictscope_eviction_call_longest_seconds",
    "evictscope_main_thread_cpu_seconds_total",
];

/// Compiles the program, so that it breaks an invariant if `breaks` names one.
fn compile(directory: &Path, name: &str, breaks: Option<&str>) -> anyhow::Result<PathBuf> {
    let program = directory.join(name);
    let mut gcc = compiling("gcc", "-O2", "__attribute__((noinline))", &program);
    gcc.arg("-rdynamic").args(breaks.map(|breaks| format!("-D{breaks}")));
    process::answer_of(&mut gcc)?;
    Ok(program)
}

/// Returns whether a family has series about a server.
fn is_exported(text: &str, family: &str, server: &str) -> bool {
    let label = format!("server=\"{server}\"");
    text.lines().any(|line| line.starts_with(family) && line.contains(&label))
}

/// Returns the only line of a log that contains `part`.
fn only_line_with<'a>(log: &'a str, part: &str) -> anyhow::Result<&'a str> {
    let mut lines = log.lines().filter(|line| line.contains(part));
    let only = lines.next().filter(|_| lines.next().is_none());
    only.with_context(|| format!("not one line with {part}: {log}"))
}

/// Checks that the plan of a program that breaks an invariant is withdrawn for `reason`.
fn withdrawn(breaks: &str, reason: &str) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut broken = Program::start(&compile(directory.path(), &program_name(breaks, 1), Some(breaks))?)?;
    let mut sound = Program::start(&compile(directory.path(), &program_name(breaks, 2), None)?)?;
    let agent = Agent::start(&[&all_programs(breaks), "--probe-mode=every-call"])?;
    let (name, sound_name) = (broken.server(), sound.server());
    let server = [("server", name.as_str())];
    let evicting = |name| [("server", name), ("kind", "evicting")];
    for name in [&name, &sound_name] {
        agent.wait_for(name)?;
    }

    // As long as the invariant holds, the numbers are right.
    let calls = broken.numbers()?[0];
    sound.numbers()?;
    let before = agent.settled()?;
    let counted = before.sum("evictscope_eviction_calls_total", &evicting(&name))?;
    ensure!(counted == calls, "{counted} calls, the program: {calls}");
    let text = agent.get("/metrics")?;
    for family in RESTING_ON_THE_PLAN {
        let is_there = is_exported(&text, family, &name);
        ensure!(is_there, "{family} was never there");
    }
    let withdrawn = "evictscope_plan_withdrawn";
    ensure!(!text.contains(withdrawn), "withdrawn too soon");

    broken.numbers()?;
    let reasons = [("server", name.as_str()), ("reason", reason)];
    until("the plan is withdrawn", || Ok(agent.scrape()?.sum(withdrawn, &reasons).ok()))?;
    let text = agent.get("/metrics")?;
    for family in RESTING_ON_THE_PLAN {
        let is_there = is_exported(&text, family, &name);
        ensure!(!is_there, "{family} is still there");
    }
    let after = agent.scrape()?;
    let by_method = [("server", name.as_str()), ("method", "none")];
    let refused = after.sum("evictscope_probe_plan_info", &by_method)?;
    ensure!(refused == 5.0, "{refused} variables without a method");
    let mode = after.sum("evictscope_probe_mode", &server)?;
    ensure!(mode == 0.0, "a probe mode without probes");
    let limit = after.sum("evictscope_maxmemory_bytes", &server);
    ensure!(limit.is_ok(), "the limit went, too");

    // The log says so once, with everything for a report.
    let said = agent.log()?;
    let line = only_line_with(&said, "withdrawn")?;
    let pid = name.trim_start_matches("pid-");
    let exe = directory.path().join(program_name(breaks, 1)).display().to_string();
    let inspect = format!("evictscope inspect {pid} --json");
    for part in ["ERROR", pid, &exe, "build_id", reason, " of ", &inspect] {
        ensure!(line.contains(part), "{part} is not in {line}");
    }

    if reason == "allocator" {
        // And once what the kernel saw: which server, and both values. Another thread logs it.
        let failed = "a check of the probe plan failed";
        until_true(failed, || Ok(agent.log()?.contains(failed)))?;
        let said = agent.log()?;
        let line = only_line_with(&said, failed)?;
        let value = |before: &str| -> anyhow::Result<u64> {
            let (_, rest) = line.split_once(before).with_context(|| line.to_owned())?;
            let digits = rest.split(|next: char| !next.is_ascii_digit()).next();
            Ok(digits.unwrap_or_default().parse()?)
        };
        let (reported, counted) = (value("mem_reported is ")?, value("allocator counts ")?);
        ensure!(reported.abs_diff(counted) == 2 << 20, "{line}");
        ensure!(line.contains("WARN") && line.contains(&name), "{line}");
    }
    // Its probes are taken off, and it stays withdrawn.
    let code = Code::of(pid.parse()?)?;
    until_true("the probes are off", || Ok(code.changed()?.is_empty()))?;
    broken.numbers()?;
    let stays = agent.scrape()?.sum(withdrawn, &reasons)? == 1.0;
    ensure!(stays, "it came back");

    // The other server of the same code is still watched.
    let calls = sound.numbers()?[0];
    let scrape = agent.settled()?;
    let counted = scrape.sum("evictscope_eviction_calls_total", &evicting(&sound_name))?;
    ensure!(counted == calls, "{counted} calls, the program: {calls}");
    let text = agent.get("/metrics")?;
    let is_withdrawn = is_exported(&text, withdrawn, &sound_name);
    ensure!(!is_withdrawn, "the sound one, too");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_counter_that_is_not_mem_reported_withdraws_the_plan() -> anyhow::Result<()> {
    withdrawn("ALLOCATES", "allocator")
}

#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_that_end_elsewhere_withdraw_the_plan() -> anyhow::Result<()> {
    withdrawn("JUMPS", "lost_exit")
}
