//! `cargo xtask bench`: what probes cost a server, evictscope's and others'.
//!
//! Two servers of one program have the same load at the same time, on one core of their own. One of them is watched,
//! and what it takes more than the other is what watching costs: whatever else happens on the machine affects both.
//! Each round measures every side once, and only measurements of one round are compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::process::Owned;
use evictscope_testkit::redis::{PrivateBuild, Redis, sets};
use evictscope_testkit::threads::Cores;
use evictscope_testkit::{debian, process};

use crate::table::{self, Row};

/// What to measure, and how long.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every side once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// What watches a server while it is measured.
#[derive(Clone, Copy)]
enum Side {
    Nobody,
    /// evictscope in a probe mode.
    Evictscope(&'static str),
    /// A tool that one would use instead, and the package that brings it. Each attaches to the entry and to the return
    /// of the eviction function of one process, and keeps a histogram of the time between the two.
    Rival(&'static str, &'static str),
}

/// All of them. They are compared with the first.
const SIDES: [Side; 6] = [
    Side::Nobody,
    Side::Evictscope("evicting-only"),
    Side::Evictscope(EVERY_CALL),
    Side::Evictscope(AUTO),
    Side::Rival(FUNCLATENCY, "libbpf-tools"),
    Side::Rival("bpftrace", "bpftrace"),
];
const BARE: usize = 0;

const FUNCLATENCY: &str = "funclatency";
/// The eviction function: rivals find functions by name only.
const FUNCTION: &str = "performEvictions";
/// The probe mode in which all calls are counted.
const EVERY_CALL: &str = "every-call";
/// The probe mode that switches between the others, by what they cost.
const AUTO: &str = "auto";

struct Condition {
    name: &'static str,
    maxmemory: &'static str,
    /// The load writes random keys out of this many.
    keys: u32,
    /// Whether about every command must evict.
    evicts: bool,
}

const CONDITIONS: [Condition; 2] = [
    // All the keys take a fiftieth of the limit.
    Condition { name: "healthy", maxmemory: "1gb", keys: 100_000, evicts: false },
    // The limit is reached with about a tenth of the keys: nine of ten writes make a new key.
    Condition { name: "evicting", maxmemory: "64mb", keys: 3_000_000, evicts: true },
];

const BEFORE: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(6);
/// The longest that the agent takes to read what happened.
const SETTLE: Duration = Duration::from_millis(800);
/// The time over which the agent averages the share of probes in the main thread.
const WINDOW: Duration = Duration::from_secs(10);
/// All probes of a rival are attached if there was no new one for this long.
const SETTLED: Duration = Duration::from_millis(500);
/// The share of the commands whose call must have been counted. Each command makes one call. A few calls may
/// fall between attaching and the first command, or after the last reading.
const COUNTED: f64 = 0.99;

/// Installs what is compared with this agent, measures, and prints the results. Needs root.
pub fn run(arguments: &Arguments, agent: &Path) -> Result<()> {
    let package = |side: &Side| match side {
        Side::Rival(name, package) if rival(name).is_err() => Some((*package).to_owned()),
        _ => None,
    };
    let absent: Vec<String> = SIDES.iter().filter_map(package).collect();
    if !absent.is_empty() {
        debian::installable().with_context(|| format!("install these to measure with: {}", absent.join(", ")))?;
        debian::install(&absent)?;
    }
    // A copy for the server that is watched. The agent is told to watch no other.
    let copy = PrivateBuild::of_redis()?;
    let version = process::answer_of(Command::new(copy.path()).arg("--version"))?;
    println!("{}, whose {FUNCTION} is watched", version.trim());
    let interrupted = process::catch_ctrl_c()?;
    let cores = Cores::split()?;
    if cores.is_none() {
        println!("there is only one core: the load slows the servers down");
    }
    for condition in &CONDITIONS {
        println!("\n{} server: maxmemory {}, {} rounds", condition.name, condition.maxmemory, arguments.rounds);
        let twins = Twins::start(&copy, condition, cores.as_ref())?;
        let mut rounds = Vec::new();
        for round in 0..arguments.rounds {
            let mut sides: Vec<_> = SIDES.iter().enumerate().collect();
            if round % 2 == 1 {
                sides.reverse();
            }
            let mut measured = SIDES.map(|_| Measured::default());
            for (index, side) in sides {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                measured[index] = twins.measure(side, agent, &copy, condition).with_context(|| side.name())?;
            }
            let times = measured.iter().map(|side| format!(" {:.0}", side.watched_ns));
            println!("round {}, ns of CPU for a SET:{}", round + 1, times.collect::<String>());
            rounds.push(measured);
        }
        let rows = (0..SIDES.len()).map(|side| row(side, &rounds, condition));
        println!("\nAgainst nobody in the same round: median [quartiles] (least … greatest)\n");
        println!("{}", table::markdown(&rows.collect::<Vec<_>>()));
    }
    Ok(())
}

fn row(side: usize, rounds: &[[Measured; SIDES.len()]], condition: &Condition) -> Row {
    let mut row = Row::new("watched by", &SIDES[side].name());
    let mut add = |column, digits, value: &dyn Fn(&[Measured; SIDES.len()]) -> f64| {
        row.fact(column, spread(rounds.iter().map(value), digits));
    };
    // Twins differ a little even if nobody watches.
    let more = |side: &Measured| side.watched_ns - side.other_ns;
    let added = |round: &[Measured; SIDES.len()], side: usize| more(&round[side]) - more(&round[BARE]);
    add("CPU of a command, times that of an unwatched server", 2, &|round| {
        (round[side].watched_ns / round[side].other_ns) / (round[BARE].watched_ns / round[BARE].other_ns)
    });
    add("ns added to a command", 0, &|round| added(round, side));
    add("by what evictscope says", 2, &|round| added(round, side) / round[side].said_ns);
    if condition.evicts {
        // All sides that count evicting calls count the same load.
        let share = |round: &[Measured]| quantile(&sorted(round.iter().map(|side| side.evicting_share)), 0.5);
        add("ns added to an evicting call", 0, &|round| added(round, side) / share(round));
    }
    row
}

#[derive(Default)]
struct Measured {
    /// CPU time of the main thread for a command of the watched server, and of the other, nanoseconds.
    watched_ns: f64,
    other_ns: f64,
    /// The share of the commands that made an evicting call. NaN if not all of these were counted.
    evicting_share: f64,
    /// What the probes cost a command by the side's own account, nanoseconds. NaN if that does not cover all the time.
    said_ns: f64,
}

impl Side {
    fn name(self) -> String {
        match self {
            Self::Nobody => "nobody".to_owned(),
            Self::Evictscope(mode) => format!("evictscope {mode}"),
            Self::Rival(name, _) => name.to_owned(),
        }
    }
}

/// Returns the path of a rival. Debian installs it where only root looks.
fn rival(name: &str) -> Result<PathBuf> {
    let found = which::which(name).or_else(|_| which::which(Path::new("/usr/sbin").join(name)));
    found.with_context(|| format!("there is no {name}"))
}

/// Attaches a rival to the eviction function of a server until the returned process is dropped.
fn attach(name: &str, server: &Redis, copy: &PrivateBuild) -> Result<Owned> {
    let mut command = Command::new(rival(name)?);
    command.args(["-p", &server.pid().to_string()]);
    if name == FUNCLATENCY {
        command.arg(format!(":{FUNCTION}"));
    } else {
        let place = format!("{}:{FUNCTION}", copy.path().display());
        command.arg("-e").arg(format!(
            "uprobe:{place} {{ @start[tid] = nsecs; }} \
             uretprobe:{place} /@start[tid]/ {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
        ));
    }
    let process = Owned::start(&mut command)?;
    // A tool says that it is attached before it is, or only into a buffer, so its open probes are counted.
    let (mut probes, mut since) = (0, Instant::now());
    process.until("the probes are attached", || {
        let files = fs::read_dir(format!("/proc/{}/fd", process.pid()))?;
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let now = links.filter(|link| link.as_os_str() == "anon_inode:[perf_event]").count();
        if now != probes {
            (probes, since) = (now, Instant::now());
        }
        Ok((probes >= 2 && since.elapsed() >= SETTLED).then_some(()))
    })?;
    Ok(process)
}

struct Twins {
    watched: Redis,
    other: Redis,
    keys: u32,
}

impl Twins {
    fn start(copy: &PrivateBuild, condition: &Condition, cores: Option<&Cores>) -> Result<Self> {
        let options = ["--maxmemory", condition.maxmemory];
        let start = || {
            anyhow::Ok(Self { watched: copy.start(&options)?, other: Redis::start(&options)?, keys: condition.keys })
        };
        let twins = cores.map_or_else(start, |cores| cores.on_the_servers(start))?;
        for server in [&twins.watched, &twins.other] {
            server.set_keys(condition.keys, condition.keys.max(1_000_000))?;
        }
        Ok(twins)
    }

    fn measure(&self, side: &Side, agent: &Path, copy: &PrivateBuild, condition: &Condition) -> Result<Measured> {
        match *side {
            Side::Nobody => Ok(self.load()?.0),
            Side::Rival(name, _) => {
                let process = attach(name, &self.watched, copy)?;
                let (measured, _) = self.load()?;
                process.must_be_alive()?;
                Ok(measured)
            }
            Side::Evictscope(mode) => {
                let watched = copy.only();
                let mut arguments = vec![&*watched, "--probe-mode", mode];
                if mode != AUTO {
                    // The mode is measured, not what the budget makes of it.
                    arguments.extend(["--overhead-budget", "100%"]);
                }
                let agent = Agent::of(agent, &arguments)?;
                agent.watches(&self.watched)?;
                self.measure_agent(&agent, mode, condition)
            }
        }
    }

    /// Does the same with an agent that watches, and checks that it did so all the time.
    fn measure_agent(&self, agent: &Agent, mode: &str, condition: &Condition) -> Result<Measured> {
        let since = Instant::now();
        let (mut measured, commands) = self.load()?;
        thread::sleep(SETTLE);
        let reading = agent.reading(&self.watched)?;
        let calls = |kind| reading.sum("evictscope_eviction_calls_total", &[("kind", kind)]);
        let evicting = calls("evicting")?;
        if mode != AUTO {
            let in_mode = reading.sum("evictscope_probe_mode", &[("mode", mode)])?;
            ensure!(in_mode == 1.0, "evictscope is not in the probe mode it was started in");
            measured.evicting_share = evicting / commands;
            let is_meant = !condition.evicts || measured.evicting_share > 0.5;
            ensure!(is_meant, "hardly any command evicted: this is not the intended load");
        }
        if mode == EVERY_CALL {
            let calls = evicting + calls("noop")?;
            let all = calls >= COUNTED * commands;
            ensure!(all, "{calls} of {commands} calls were counted: the probes were not attached all the time");
        }
        if since.elapsed() < WINDOW {
            let ratio = reading.sum("evictscope_overhead_ratio", &[])?;
            measured.said_ns = ratio * WINDOW.as_nanos() as f64 / commands;
        }
        Ok(measured)
    }

    /// Puts both under load for some seconds. Returns what was measured, and the commands of the watched server, with
    /// those before and after.
    fn load(&self) -> Result<(Measured, f64)> {
        let [begun, _] = work(&self.watched)?;
        let endless = sets(self.keys, u32::MAX / 4);
        let loads = [self.watched.load(&endless)?, self.other.load(&endless)?];
        thread::sleep(BEFORE);
        let both = || anyhow::Ok([work(&self.watched)?, work(&self.other)?]);
        let before = both()?;
        thread::sleep(MEASURED);
        let after = both()?;
        let [watched_ns, other_ns] =
            [0, 1].map(|server| (after[server][1] - before[server][1]) / (after[server][0] - before[server][0]));
        let measured = Measured { watched_ns, other_ns, evicting_share: f64::NAN, said_ns: f64::NAN };
        for load in loads {
            // Then it has been running all the time.
            load.must_be_alive()?;
        }
        Ok((measured, work(&self.watched)?[0] - begun))
    }
}

/// Returns the commands that a server has run, and the CPU time of its main thread in nanoseconds.
fn work(server: &Redis) -> Result<[f64; 2]> {
    let cpu_ns = server.main_thread_times()?.running.as_nanos() as f64;
    Ok([server.info("total_commands_processed")?, cpu_ns])
}

/// Returns the median, the quartiles in brackets, and the least and the greatest value in parentheses. Values that are
/// NaN do not count; a hyphen stands for none.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let values = sorted(values);
    if values.is_empty() {
        return "-".to_owned();
    }
    let [least, lower, median, upper, greatest] = [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| quantile(&values, part));
    format!("{median:.digits$} [{lower:.digits$} {upper:.digits$}] ({least:.digits$} … {greatest:.digits$})")
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the value at the nearest rank.
fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let rank = quantile * sorted.len().saturating_sub(1) as f64;
    sorted.get(rank.round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_values() {
        let values = [4.0, 1.0, f64::NAN, 3.0, 2.0, 5.0];
        assert_eq!(spread(values.into_iter(), 2), "3.00 [2.00 4.00] (1.00 … 5.00)");
        assert_eq!(spread([].into_iter(), 2), "-");
    }
}
