//! Half an hour of a real Prometheus over servers whose trouble is known: which alerts fire about each, and when, beside
//! those that are to.
//!
//! On two cores not all can be busy at once: the server in the cycle has the first half of the time, the one that evicts
//! without end most of the second.

mod servers;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use evictscope_testkit::{
    agent::{Agent, Program},
    clock::unix_time,
    port::port_for_later,
    process,
    prometheus::Prometheus,
    text::seconds,
    workspace,
};
use rustix::process::Signal;

use self::servers::{Cycle, Endless, Full, Unwatchable, evict_the_big_key, with_a_big_key};
use super::{answers, calm::Calm, folders, recording, rules};

/// From one scrape to the next, and from one evaluation of the rules to the next, as an operator has it.
const PACE: Duration = Duration::from_secs(15);
/// The time between two looks at the alerts.
const LOOK: Duration = Duration::from_secs(5);

/// When something happens, as shares of the whole time.
mod at {
    /// The big key is evicted.
    pub const BIG_KEY: f64 = 0.15;
    /// The cycle's load ends.
    pub const CYCLE_ENDS: f64 = 0.5;
    /// A server and the agent are restarted.
    pub const RESTARTS: f64 = 0.53;
    /// A server begins to evict without end.
    pub const ENDLESS: f64 = 0.55;
    /// It ends.
    pub const ENDLESS_ENDS: f64 = 0.85;
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Calm,
    Restarted,
    InTheCycle,
    EvictsWithoutEnd,
    BigKey,
    FullWithoutEviction,
    /// What an alert is about that names no server.
    Host,
}

impl Role {
    const ALL: [Self; 7] = [
        Self::Calm,
        Self::Restarted,
        Self::InTheCycle,
        Self::EvictsWithoutEnd,
        Self::BigKey,
        Self::FullWithoutEviction,
        Self::Host,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Calm => "evicts calmly (3)",
            Self::Restarted => "evicts calmly, restarted",
            Self::InTheCycle => "in the cycle",
            Self::EvictsWithoutEnd => "evicts without end",
            Self::BigKey => "evicts a big key",
            Self::FullWithoutEviction => "full, noeviction",
            Self::Host => "the host",
        }
    }

    /// Returns the alerts that are to fire about it, and those that may.
    fn alerts(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Calm | Self::Restarted => (&[], &[]),
            Self::InTheCycle => (
                &[
                    "EvictscopeEvictionBurst",
                    "EvictscopeBurstsRecurring",
                    "EvictscopeStallBudgetExceeded",
                ],
                &[],
            ),
            // It comes back in that it goes on: in three spans of 5 minutes, if the run is long enough.
            Self::EvictsWithoutEnd => (&["EvictscopeStalled"], &["EvictscopeStallBudgetExceeded"]),
            Self::BigKey => (&["EvictscopeEvictionCallSlow"], &[]),
            Self::FullWithoutEviction => (&["EvictscopeEvictionsFailing"], &[]),
            // The program in which nothing can be found.
            Self::Host => (&["EvictscopeServerNotWatched"], &[]),
        }
    }
}

/// When each alert about a server fired first and last, in time since the beginning.
type Fired = BTreeMap<(Role, String), (Duration, Duration)>;

/// Keeps the servers for `length` and prints which alerts fired.
///
/// # Errors
///
/// Fails where an alert fired that was not to, or did not that was, and on Ctrl-C.
pub fn run(length: Duration) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let program = Program::Built(workspace::agent_binary()?);
    let port = port_for_later()?;
    let start_agent = || Agent::start_command(program.run(), port, &[]);
    let agent = start_agent()?;
    let start = unix_time()?;
    let rules = rules::files(&folders::sources().join("rules"))?;

    let cycle = Cycle::start(length.mul_f64(at::CYCLE_ENDS))?;
    let calm = [Calm::start()?, Calm::start()?, Calm::start()?];
    let restarted = Calm::start()?;
    let big_key = with_a_big_key()?;
    let full = Full::start(length)?;
    let _unwatchable = Unwatchable::start(length)?;
    let mut night = Night {
        prometheus: Prometheus::start(port, &rules, PACE)?,
        roles: BTreeMap::from([
            (cycle.server.clone(), Role::InTheCycle),
            (restarted.server(), Role::Restarted),
            (big_key.name(), Role::BigKey),
            (full.server(), Role::FullWithoutEviction),
        ]),
        fired: Fired::new(),
        began: Instant::now(),
        length,
        interrupted: &interrupted,
    };
    let calm_ones = calm.iter().map(|calm| (calm.server(), Role::Calm));
    night.roles.extend(calm_ones);

    night.watch_until(at::BIG_KEY)?;
    evict_the_big_key(&big_key)?;
    night.watch_until(at::CYCLE_ENDS)?;
    let in_the_cycle = cycle.server.clone();
    drop(cycle);
    night.watch_until(at::RESTARTS)?;
    let _restarted = restarted.restart()?;
    agent.end(Signal::TERM)?;
    let _agent = start_agent()?;
    night.watch_until(at::ENDLESS)?;
    let endless = Endless::start()?;
    night.roles.insert(endless.server(), Role::EvictsWithoutEnd);
    night.watch_until(at::ENDLESS_ENDS)?;
    drop(endless);
    night.watch_until(1.0)?;

    for mut calm in calm {
        calm.end()?;
    }
    let dashboards = folders::sources();
    let asked = answers::of_dashboards(&night.prometheus, &dashboards, &in_the_cycle, start)?;
    recording::keep(&night.prometheus, asked.answers, start)?;
    judge(&night.fired)
}

/// The run, and what fired in it.
struct Night<'a> {
    prometheus: Prometheus,
    /// What the server with each name does.
    roles: BTreeMap<String, Role>,
    fired: Fired,
    began: Instant,
    length: Duration,
    interrupted: &'a AtomicBool,
}

impl Night<'_> {
    /// Looks at the alerts until this share of the time has passed, and prints each that begins to fire.
    fn watch_until(&mut self, share: f64) -> Result<()> {
        while self.began.elapsed() < self.length.mul_f64(share) {
            ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            let alerts = self.prometheus.alerts()?;
            for alert in alerts.iter().filter(|alert| alert.state == "firing") {
                let server = alert.labels.get("server");
                let role = server.map_or(Some(Role::Host), |name| self.roles.get(name).copied());
                let Some(role) = role else {
                    // A server that was here before.
                    continue;
                };
                let name = alert.labels.get("alertname").cloned().unwrap_or_default();
                let now = self.began.elapsed();
                let first = || {
                    let text = alert.annotations.get("description");
                    let text = text.map_or("", String::as_str);
                    println!("{:>9}  {}: {name}: {text}", seconds(now), role.name());
                    (now, now)
                };
                self.fired
                    .entry((role, name.clone()))
                    .or_insert_with(first)
                    .1 = now;
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Prints the table, and fails where it is not as it is to be.
fn judge(fired: &Fired) -> Result<()> {
    let mut wrong = Vec::new();
    println!(
        "\n{:<26}  {:<34}  {:>9}  {:>9}",
        "server", "alert", "from", "until"
    );
    for role in Role::ALL {
        let (wanted, allowed) = role.alerts();
        let mut any = false;
        for ((_, name), (from, until)) in fired.iter().filter(|((about, _), _)| *about == role) {
            any = true;
            let (from, until) = (seconds(*from), seconds(*until));
            println!("{:<26}  {name:<34}  {from:>9}  {until:>9}", role.name());
            if ![wanted, allowed].concat().contains(&name.as_str()) {
                wrong.push(format!("{}: {name} was not to fire", role.name()));
            }
        }
        if !any {
            println!("{:<26}  none", role.name());
        }
        for name in wanted {
            if !fired.contains_key(&(role, (*name).to_owned())) {
                wrong.push(format!("{}: {name} did not fire", role.name()));
            }
        }
    }
    ensure!(
        wrong.is_empty(),
        "not as it is to be:\n  {}",
        wrong.join("\n  ")
    );
    Ok(())
}
