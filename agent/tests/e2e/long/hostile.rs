//! Executables that were made to take as much planning as can be hold up no other server.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use evictscope_testkit::{
    agent::Agent, own_build::OwnBuild, owned::Owned, process, wait::until_true,
};
use procfs::process::Process;

use crate::bursts::{agreed, fill, follow, without_pause};

/// How many there are.
const HOSTILE: usize = 20;
/// The program that has the structure of a server.
const PROGRAM: &str = include_str!("../../../plan/tests/fixtures/evict.c");
/// A place in it, behind an eviction.
const PLACE: &str = "    result = running ?";
/// Many paths through the code there, which the budget for one file does not suffice for.
const CODE: &str = r#"
    asm volatile(".rept 6000; test %%rcx, %%rcx; jz 1f; inc %%rax; 1:; .endr" ::: "rax", "rcx");
    result = running ?"#;

/// Compiles the program so that no plan for it is ever finished. It does nothing.
fn compile(own: &OwnBuild, to: &Path) -> anyhow::Result<()> {
    let waits = PROGRAM
        .replace(PLACE, CODE)
        .replace("while (getchar() != EOF)", "while (pause())");
    let source = own.path().with_extension("c");
    std::fs::write(&source, waits)?;
    let options = [
        "-w",
        "-O2",
        "-rdynamic",
        "-DFORM=__attribute__((noinline))",
        "-o",
    ];
    let mut compiler = Command::new("cc");
    process::answer_of(compiler.args(options).arg(to).arg(source))?;
    Ok(())
}

/// Starts hostile processes, each of a file of its own, whose names begin with that of `own`.
fn start_hostile(own: &OwnBuild) -> anyhow::Result<Vec<Owned>> {
    let program = own.path().with_extension("hostile");
    compile(own, &program)?;
    let start = |number: usize| {
        let number = number.to_string();
        let copy = own.path().with_extension(&number);
        std::fs::copy(&program, &copy)?;
        let mut file = OpenOptions::new().append(true).open(&copy)?;
        file.write_all(number.as_bytes())?;
        drop(file);
        Owned::start(&mut Command::new(copy))
    };
    (0..HOSTILE).map(start).collect()
}

/// Returns how long the processes that plan have run, as far as they have ended: the agent has no other children that end.
fn planned_for(agent: &Agent) -> anyhow::Result<Duration> {
    let stat = Process::new(agent.pid().try_into()?)?.stat()?;
    let ticks = u64::try_from(stat.cutime + stat.cstime)?;
    Ok(Duration::from_millis(
        ticks * 1000 / procfs::ticks_per_second(),
    ))
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_keeps_its_times_while_20_executables_use_up_their_budget() -> anyhow::Result<()> {
    ensure!(PROGRAM.contains(PLACE), "the fixture has no `{PLACE}`");
    let own = OwnBuild::of_redis()?;
    let redis = own.start(&[])?;
    fill(&redis)?;
    let hostile = start_hostile(&own)?;
    let agent = Agent::watching(&redis, &["--probe-mode=evicting-only", &own.only()])?;
    let before = planned_for(&agent)?;
    let seen = follow(&agent, &redis, without_pause)?;
    let meanwhile = planned_for(&agent)? - before;
    println!("{meanwhile:?} of planning beside the burst");
    agreed(&agent, &redis, &seen)?;

    // Each is refused once, and never planned again.
    let refusals = || anyhow::Ok(agent.log()?.matches("cannot watch this server").count());
    until_true("all are refused", || Ok(refusals()? >= HOSTILE))?;
    let all = planned_for(&agent)?;
    println!("{all:?} of planning for all");
    // What is refused for now only would be tried again after 10 s.
    let observed = || {
        agent
            .reading(&redis)?
            .sum("evictscope_observed_seconds_total", &[])
    };
    let since = observed()?;
    until_true("12 s pass", || Ok(observed()? - since > 12.0))?;
    let again = planned_for(&agent)? - all;
    let least = all / (2 * HOSTILE as u32);
    ensure!(again < least, "planned for {again:?} more");
    ensure!(refusals()? == HOSTILE, "{}", agent.log()?);
    for process in &hostile {
        process.must_be_alive()?;
    }
    redis.must_be_alive()
}
