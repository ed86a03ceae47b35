//! End to end: executables that were made to take as much planning as can be hold up no other server.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use evictscope_testkit::{
    agent::Agent, evictions::Evictions, own_build::OwnBuild, owned::Owned, process, schedstat,
    wait::within,
};
use procfs::process::{Process, Task};

/// How many there are.
const HOSTILE: usize = 20;
/// How far the start and the end of a burst may be from what the server says, in seconds.
const EXACT: f64 = 0.15;
/// For how long executables are planned beside the burst, at least: more than what a burst may be wrong by.
const BESIDE: Duration = Duration::from_millis(300);
/// The program that has the structure of a server.
const PROGRAM: &str = include_str!("../plan/tests/fixtures/evict.c");
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

/// Returns how long the thread that plans has run.
fn planned_for(agent: &Agent) -> anyhow::Result<Duration> {
    let process = Process::new(agent.pid().try_into()?)?;
    let threads = process.tasks()?.collect::<Result<Vec<_>, _>>()?;
    let is_planner = |task: &&Task| task.stat().is_ok_and(|stat| stat.comm == "planner");
    let planner = threads.iter().find(is_planner).context("no planner")?;
    let tid = planner.tid.try_into()?;
    Ok(schedstat::of_thread(agent.pid(), tid)?.running)
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_keeps_its_times_while_20_executables_use_up_their_budget() -> anyhow::Result<()> {
    ensure!(PROGRAM.contains(PLACE), "the fixture has no `{PLACE}`");
    let own = OwnBuild::of_redis()?;
    let redis = own.start(&[])?;
    redis.write_keys(90_000)?;
    let used = redis.info("used_memory")?;
    redis.config_set("maxmemory", &format!("{:.0}", used + 4e6))?;
    let hostile = start_hostile(&own)?;

    let begun = Instant::now();
    let agent = Agent::start(&[&own.only()])?;
    let took = begun.elapsed();
    println!("ready after {took:?}");
    ensure!(took < Duration::from_secs(10), "ready after {took:?}");
    agent.wait_for(&redis.name(), Duration::from_secs(5))?;
    let before = planned_for(&agent)?;
    let options = "-t set -d 500 -r 10000000 -c 8 -n 100000000";
    let load = redis.load(&options.split(' ').collect::<Vec<_>>())?;
    let seen = std::thread::scope(|scope| {
        let seen = scope.spawn(|| Evictions::watch(&redis, Duration::from_secs(5)));
        std::thread::sleep(Duration::from_secs(3));
        drop(load);
        seen.join()
    });
    let seen = seen.map_err(|_| anyhow::anyhow!("the watching thread panicked"))??;
    let refusals = || anyhow::Ok(agent.log()?.matches("cannot watch this server").count());
    let (refused, meanwhile) = (refusals()?, planned_for(&agent)? - before);
    println!("{refused} refused by the end of the burst, {meanwhile:?} of planning in it");
    ensure!(
        meanwhile > BESIDE,
        "only {meanwhile:?} of planning beside the burst"
    );
    let bursts = within(Duration::from_secs(6), "the burst is over", || {
        let bursts = agent.bursts(&redis)?;
        Ok((!bursts.is_empty()).then_some(bursts))
    })?;
    let [burst] = &bursts.0[..] else {
        bail!("not one burst: {bursts:?}");
    };
    let (first, last) = (seen.first.context("none")?, seen.last.context("none")?);
    for (at, (from, to)) in [(burst.start, first), (burst.end, last)] {
        println!("{at} in {from} to {to}");
        let is_right = (from - EXACT..=to + EXACT).contains(&at);
        ensure!(is_right, "{at} is not in {from} to {to}: {burst:?}");
    }

    // Each is refused once, and never planned again.
    let all = within(Duration::from_secs(60), "all are refused", || {
        Ok((refusals()? >= HOSTILE).then_some(()))
    })?;
    let before = planned_for(&agent)?;
    println!("all refused {:?} later, for {before:?} of CPU time", all.1);
    std::thread::sleep(Duration::from_secs(12));
    let again = planned_for(&agent)? - before;
    ensure!(
        again < Duration::from_millis(10),
        "planned for {again:?} more"
    );
    ensure!(refusals()? == HOSTILE, "{}", agent.log()?);
    for process in &hostile {
        process.must_be_alive()?;
    }
    redis.must_be_alive()
}
