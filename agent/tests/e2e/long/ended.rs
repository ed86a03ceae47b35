//! How servers end: what the agent says of it, against what their parent is told.

use std::path::Path;
use std::process::Command;

use evictscope_records::{Ending, Occasion, Summary};

use crate::core::records::record_of;
use crate::prelude::*;

const ENDED: &str = "evictscope_servers_ended_total";

/// Fails unless the agent says that a server has ended like this, everywhere that it says so.
fn must_say(agent: &Agent, redis: &Redis, ending: Ending) -> anyhow::Result<()> {
    let is_of_end = |summary: &Summary| summary.occasion == Occasion::Ended && summary.server == redis.name();
    let record = record_of(agent, is_of_end)?;
    ensure!(record.ending == Some(ending), "{:?}, not {ending:?}", record.ending);
    let first = record.moments.first().context("no moments")?;
    let minute = (record.ended_us - first.unix_us()) as f64 / 1e6;
    ensure!((0.0..=61.0).contains(&minute), "{minute} s before its end");
    let metrics = agent.scrape()?;
    let (name, status) = (redis.name(), ending.status());
    let labels = [("server", &*name), ("how", ending.how()), ("status", &status)];
    let at = metrics.sum("evictscope_server_ended_timestamp_seconds", &labels)?;
    let apart = (at - record.ended_us as f64 / 1e6).abs();
    ensure!(apart < 0.01, "ended at {at}, and {apart} s later in its record");
    let page = agent.get(&format!("/server/{}", redis.name()))?;
    ensure!(page.contains(&ending.to_string()), "{ending}: {page}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn the_end_of_a_server_is_told_as_its_parent_is_told() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let agent = Agent::start(&[&build.only()])?;
    let started = || -> anyhow::Result<Redis> {
        let redis = build.start(&["--enable-debug-command", "yes"])?;
        agent.watches(&redis)?;
        Ok(redis)
    };
    // Its parent takes its exit code at once …
    let redis = started()?;
    redis.kill()?;
    must_say(&agent, &redis, Ending::Signal { number: 9 })?;
    // … and here not before the end of this test.
    let redis = started()?;
    let load = redis.load("-t set -d 500 -r 10000000 -c 8 -n 100000000")?;
    until_true("it evicts", || Ok(redis.info("evicted_keys")? > 0.0))?;
    redis.signal(Signal::KILL)?;
    must_say(&agent, &redis, Ending::Signal { number: 9 })?;
    drop(load);
    let redis = started()?;
    // It answers no more.
    let _ = redis.cli(&["debug", "segfault"]);
    must_say(&agent, &redis, Ending::Signal { number: 11 })?;
    let redis = started()?;
    let _ = redis.cli(&["shutdown", "nosave"]);
    must_say(&agent, &redis, Ending::Exit { status: 0 })?;
    let redis = started()?;
    redis.signal(Signal::TERM)?;
    must_say(&agent, &redis, Ending::Exit { status: 0 })?;
    let before = agent.scrape()?.by_label(ENDED, "how");
    let expected = [("exit", 2.0), ("signal", 3.0)].map(|(how, count)| (how.to_owned(), count)).into();
    ensure!(before == expected, "{before:?}");
    // Another program in its place is no end of a process.
    let redis = started()?;
    let _ = redis.cli(&["debug", "restart"]);
    until_true("it is seen again", || Ok(agent.log()?.contains("it executes a program anew")))?;
    agent.watches(&redis)?;
    let after = agent.scrape()?.by_label(ENDED, "how");
    ensure!(after == before, "{after:?}");
    Ok(())
}

/// A control group of memory, removed on drop.
struct Group(std::path::PathBuf);

impl Group {
    /// Makes one with this limit, bytes; `None` if there is no such hierarchy.
    fn with(limit: &str) -> anyhow::Result<Option<Self>> {
        let roots = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, file) in roots {
            let group = Self(Path::new(root).join(format!("evictscope-test-{}", std::process::id())));
            let controls = std::fs::read_to_string(Path::new(root).join("cgroup.subtree_control"));
            let has_memory = root.ends_with("memory") || controls.is_ok_and(|all| all.contains("memory"));
            if has_memory && std::fs::create_dir(&group.0).is_ok() {
                std::fs::write(group.0.join(file), limit)?;
                // Without this its memory would be swapped out instead.
                let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
                let _ = std::fs::write(group.0.join("memory.swappiness"), "0");
                return Ok(Some(group));
            }
        }
        Ok(None)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may still hold a process if the test failed.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "needs root and BPF"]
fn the_oom_killer_of_a_control_group_is_named() -> anyhow::Result<()> {
    let Some(group) = Group::with("60000000")? else {
        println!("skipped: no control group with a memory limit can be made here");
        return Ok(());
    };
    let build = PrivateBuild::of_redis()?;
    let agent = Agent::start(&[&build.only()])?;
    let mut shell = Command::new("sh");
    let procs = group.0.join("cgroup.procs");
    shell.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(procs).arg(build.path());
    let redis = Redis::start_program(shell, &["--maxmemory", "0"])?;
    agent.watches(&redis)?;
    // It is killed meanwhile.
    let _load = redis.load("-t set -d 10000 -r 10000000 -c 8 -n 100000")?;
    must_say(&agent, &redis, Ending::Oom { of_group: Some(true) })?;
    let log = agent.log()?;
    let sentence = "was killed by the OOM killer of its control group; its control group, or one above it, was at its memory limit";
    ensure!(log.contains(sentence), "{log}");
    Ok(())
}
