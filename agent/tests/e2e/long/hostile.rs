//! Executables that were made to take as much planning as possible, and debug files that were made to mislead, harm no
//! other server.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use evictscope_testkit::agent::inspect;
use evictscope_testkit::{process, root};
use procfs::process::Process;

use crate::core::hostile::planners;
use crate::core::pages::is_profiled;
use crate::core::phases::{agreed, fill, follow, without_pause};
use crate::prelude::*;
use crate::silent_files::SilentFiles;

/// How many hostile processes there are.
const HOSTILE: usize = 20;
/// Mount namespaces whose debug files cannot be read: more than the processes that plan at once.
const NAMESPACES: usize = 5;
/// The program that has the structure of a server.
const PROGRAM: &str = include_str!("../../../plan/tests/fixtures/evict.c");
/// A place in it, after an eviction.
const PLACE: &str = "    result = running ?";
/// Many paths through the code there: too many for the budget of one file.
const CODE: &str = r#"
    asm volatile(".rept 6000; test %%rcx, %%rcx; jz 1f; inc %%rax; 1:; .endr" ::: "rax", "rcx");
    result = running ?"#;

/// Compiles a program, and puts its source beside it.
fn compile(source: &str, options: &[&str], to: &Path) -> anyhow::Result<()> {
    let file = to.with_extension("c");
    std::fs::write(&file, source)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-w", "-O2", "-DFORM=__attribute__((noinline))"]);
    process::answer_of(compiler.args(options).arg("-o").arg(to).arg(file))?;
    Ok(())
}

/// Starts hostile processes, each from a file of its own, whose names begin with that of `own`.
fn start_hostile(build: &PrivateBuild) -> anyhow::Result<Vec<Owned>> {
    let program = build.path().with_extension("hostile");
    // It does nothing, and no plan for it is ever finished.
    let waits = PROGRAM.replace(PLACE, CODE).replace("while (getchar() != EOF)", "while (pause())");
    compile(&waits, &["-rdynamic"], &program)?;
    let start = |number: usize| {
        let number = number.to_string();
        let copy = build.path().with_extension(&number);
        std::fs::copy(&program, &copy)?;
        let mut file = OpenOptions::new().append(true).open(&copy)?;
        file.write_all(number.as_bytes())?;
        drop(file);
        Owned::start(&mut Command::new(copy))
    };
    (0..HOSTILE).map(start).collect()
}

/// Returns how long the planning processes that have ended ran: the agent has no other children that end.
pub fn planned_for(agent: &Agent) -> anyhow::Result<Duration> {
    let stat = Process::new(agent.pid().try_into()?)?.stat()?;
    let ticks = u64::try_from(stat.cutime + stat.cstime)?;
    Ok(Duration::from_millis(ticks * 1000 / procfs::ticks_per_second()))
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_keeps_its_times_while_20_executables_use_up_their_budget() -> anyhow::Result<()> {
    ensure!(PROGRAM.contains(PLACE), "the fixture has no `{PLACE}`");
    let build = PrivateBuild::of_redis()?;
    let redis = build.start(&[])?;
    fill(&redis)?;
    let hostile = start_hostile(&build)?;
    let agent = Agent::watching(&redis, &["--probe-mode=evicting-only", &build.only()])?;
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
    // A temporary refusal would be tried again after 10 s.
    let observed = || agent.reading(&redis)?.sum("evictscope_observed_seconds_total", &[]);
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

/// Makes a debug file below `directory` that belongs to an executable by its build id, but says other things.
fn forge_debug_file(executable: &Path, directory: &Path) -> anyhow::Result<()> {
    let plan = inspect(executable)?;
    let build_id = plan["build_id"].as_str().context("no build id")?;
    let (first, rest) = build_id.split_at(2);
    let place = directory.join("debug/.build-id").join(first);
    std::fs::create_dir_all(&place)?;
    compile(PROGRAM, &["-g", &format!("-Wl,--build-id=0x{build_id}")], &place.join(format!("{rest}.debug")))
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn a_library_that_cannot_be_read_keeps_no_other_server_from_being_profiled() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let directory = tempfile::tempdir()?;
    let library = directory.path().join("library.so");
    compile("int nothing(void) { return 0; }", &["-shared"], &library)?;
    let files = SilentFiles::mount(std::fs::read(library)?)?;
    let mut program = Command::new(build.path());
    program.env("LD_PRELOAD", files.path());
    let (hidden, redis) = (Redis::start_program(program, &[])?, build.start(&[])?);
    let agent = Agent::watching(&redis, &[&build.only()])?;
    agent.watches(&hidden)?;
    let load = |redis: &Redis| redis.load("-t set -r 1000 -P 16 -n 100000000");
    let _loads = [load(&hidden)?, load(&redis)?];
    files.silence(true);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| is_profiled(&agent, &hidden));
        until_true("the library is to be read", || Ok(files.waiting() > 0))?;
        is_profiled(&agent, &redis)?;
        // The functions of its executable are named when the library is given up.
        first.join().map_err(|_| anyhow::anyhow!("it panicked"))?
    })
}

/// Starts a server that sees other directories than this process, after `mount` has put them there.
fn start_elsewhere(build: &PrivateBuild, mount: &str) -> anyhow::Result<Redis> {
    let script = format!("{mount} && exec {} \"$@\"", build.path().display());
    Redis::start_program(root::unseen(&script), &[])
}

#[test]
#[ignore = "needs root and BPF"]
fn a_debug_file_in_another_mount_namespace_misleads_about_no_server_outside() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let directory = tempfile::tempdir()?;
    forge_debug_file(&build.path(), directory.path())?;
    let forged = directory.path().display();
    let mount = format!("mount -t overlay none -o lowerdir={forged}:/usr/lib /usr/lib");
    let misled = start_elsewhere(&build, &mount)?;
    let agent = Agent::watching(&misled, &[&build.only()])?;
    ensure!(agent.log()?.contains("debug information from"));

    let redis = build.start(&[])?;
    agent.watches(&redis)?;
    redis.write_keys(150_000)?;
    let calls = agent.settled_reading(&redis)?.sum("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
    ensure!(calls > 1_000.0, "{calls} evicting calls");
    Ok(())
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn debug_files_that_cannot_be_read_hide_the_servers_of_their_mount_namespace_alone() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let files = SilentFiles::mount(Vec::new())?;
    let silent = files.path().parent().map(Path::display).map(|path| path.to_string()).context("no directory")?;
    let mount = format!("mount --bind {silent} /usr/lib/debug");
    let hidden = (0..NAMESPACES).map(|_| start_elsewhere(&build, &mount)).collect::<anyhow::Result<Vec<_>>>()?;
    files.silence(true);
    let agent = Agent::start(&[&build.only()])?;
    until_true("all planners wait", || Ok(planners(&agent)?.len() >= NAMESPACES && files.waiting() > 0))?;
    // None of them had to be given up before the last began.
    let unwatched = || agent.scrape()?.sum("evictscope_servers_unwatched", &[]);
    ensure!(unwatched()? == 0.0, "{}", agent.log()?);
    let redis = build.start(&[])?;
    agent.watches(&redis)?;
    until_true("the others are unwatched", || Ok(unwatched()? == NAMESPACES as f64))?;
    for server in &hidden {
        server.must_be_alive()?;
    }
    redis.must_be_alive()
}
