//! Finds out which commands ran while clients were stalled: by the server's own counters, or, where these were not
//! found or what ran had not ended, by the profile.

use std::collections::BTreeMap;
use std::time::Duration;

use evictscope_telemetry::{CommandShare, CommandSpan, StallCause, StallTime, calls_others, commands_in};

use super::window::Window;
use crate::Configuration;
use crate::profile::Profile;
use crate::text::seconds;

/// A command is named from this share of the time, or of the samples, on …
const NAMED: f64 = 0.1;
/// … of at least this many samples.
const LEAST_SAMPLES: u64 = 5;
/// A command with this share is the one to act on.
const MOST: f64 = 0.5;
/// A call that had a CPU for so long holds up others by itself, whoever else wants the CPU: as with evicting calls. In
/// a profile, the fewest samples are as much.
const LEAST_CALL_US: f64 = 100_000.0;
/// Its calls have grown in a burst if there are this many times as many a second as before …
const GROWN: f64 = 1.5;
/// … and this many more.
const GROWN_CALLS: f64 = 100.0;

/// What to do in place of slow calls of these commands, and the run that showed it: Debian's redis-server 7.0.15.
const INSTEAD: [(&str, &str, Option<&str>); 5] = [
    (
        "exec",
        "Split big transactions: no other command is served while EXEC runs",
        Some("100,000 SETs: the longest GET meanwhile took 259 ms with one MULTI of all, 6 ms with MULTIs of 1,000"),
    ),
    (
        "rename",
        "Split the big value: the one in its place is freed in one go",
        Some(
            "RENAME over a hash of 1.5 million fields took 1,836 ms, over each of 100 hashes with as many in all 15 ms",
        ),
    ),
    ("migrate restore", "Split the big value: it is copied in one go", None),
    (
        "hgetall hkeys hvals smembers lrange zrange",
        "Read big values in parts (HSCAN, SSCAN, ranges): no other command is served meanwhile",
        Some(
            "a hash of 1.2 million fields: the longest GET meanwhile took 1,067 ms with HGETALL, 29 ms with HSCAN COUNT 1000",
        ),
    ),
    (
        "sort sunionstore sinterstore zunionstore zinterstore",
        "Compute on smaller values, or on a replica: no other command is served meanwhile",
        None,
    ),
];

/// The commands that were running.
pub struct Commands {
    /// The commands to name, with their microseconds or samples, the most first.
    named: Vec<(String, u64)>,
    /// Those of all commands.
    all: u64,
    are_samples: bool,
    /// The first of them that is slow by itself, and what it took.
    slow: Option<(String, String)>,
}

impl Commands {
    /// Finds them for the time in which commands stalled clients, or the lack of a CPU did. The counters have what
    /// ended in that time; if that is less than half of it, the profile is asked, if it was taken for most of the time.
    pub fn of(window: &Window<'_>) -> Self {
        let is_of_commands = |stall: &StallTime| matches!(stall.by, StallCause::Commands | StallCause::Cpu);
        let times = Vec::from_iter(window.stall_times().filter(is_of_commands));
        let stalled_us = times.iter().fold(0, |sum: u64, time| sum.saturating_add(time.length_us()));
        let counted = Self::counted(window);
        let profile = window.record.profile.as_ref().ok();
        let profile = profile.filter(|profile| counted.all < stalled_us / 2 && is_of(profile, &times));
        let sampled = profile.map(|profile| Self::within(profile, &times));
        let Some(mut sampled) = sampled.filter(|sampled| !sampled.named.is_empty()) else { return counted };
        // Samples are of one call if none has ended.
        let ended = Self::ended(window);
        let is_one =
            |(name, _): &(String, String)| !ended.iter().any(|command| command.name.starts_with(name.as_str()));
        sampled.slow = sampled.slow.filter(|slow| !ended.is_empty() && is_one(slow));
        sampled
    }

    /// Returns those that ended while clients were stalled, whatever stalled them, by the server's own counters.
    fn ended(window: &Window<'_>) -> Vec<CommandShare> {
        let stalls = Vec::from_iter(window.stall_times());
        let is_stall = |span: &&CommandSpan| {
            span.is_stalled && stalls.iter().any(|stall| stall.from_us <= span.to_us && span.from_us <= stall.to_us)
        };
        commands_in(window.record.commands.iter().filter(is_stall))
    }

    /// Finds those that ended meanwhile.
    pub fn counted(window: &Window<'_>) -> Self {
        let commands = Self::ended(window);
        let times = window.grown_us(|moment| moment.cpu).zip(window.grown_us(|moment| moment.waiting));
        let with_cpu = times.map_or(1.0, |(cpu, waiting)| cpu as f64 / (cpu as f64 + waiting as f64));
        let parts = commands.iter().map(|command| (command.name.clone(), command.us));
        let most = Self::most(parts, false);
        let is_named = |command: &&CommandShare| most.named.iter().any(|(name, _)| *name == command.name);
        let slow = commands.iter().filter(is_named).find_map(|command| {
            let us = command.us as f64 / command.calls.max(1) as f64;
            (with_cpu * us >= LEAST_CALL_US).then(|| {
                let [took, had] = [us, with_cpu * us].map(|us| seconds(us / 1e6));
                (command.name.clone(), format!("took {took} a call, and had a CPU for some {had} of that"))
            })
        });
        Self { slow, ..most }
    }

    fn within(profile: &Profile, times: &[StallTime]) -> Self {
        let is_within = |at_ms: &&u32| {
            let at_us = profile.began_us.saturating_add(1_000 * u64::from(**at_ms));
            times.iter().any(|time| (time.from_us..time.to_us).contains(&at_us))
        };
        let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
        for stack in &profile.stacks {
            let names = stack.frames.iter().filter_map(|frame| profile.functions.get(*frame as usize));
            // The outermost one: a script calls others.
            let command = names.filter_map(|name| command(name)).next();
            *samples.entry(command.unwrap_or_default()).or_default() +=
                stack.at_ms.iter().filter(is_within).count() as u64;
        }
        let most = Self::most(samples.into_iter().map(|(name, samples)| (name.to_owned(), samples)), true);
        let slow = most.named.first().filter(|(_, samples)| *samples >= LEAST_SAMPLES);
        let has = |(name, samples): &(String, u64)| (name.clone(), format!("has {samples} samples of the profile"));
        Self { slow: slow.map(has), ..most }
    }

    /// Names those with most of the time, or of the samples. What is not known by name has none.
    fn most(parts: impl Iterator<Item = (String, u64)>, are_samples: bool) -> Self {
        let mut named = Vec::from_iter(parts);
        let all = named.iter().fold(0, |sum: u64, (_, part)| sum.saturating_add(*part));
        let least = if are_samples { LEAST_SAMPLES } else { 1 };
        named.retain(|(name, part)| !name.is_empty() && all >= least && *part as f64 >= NAMED * all as f64);
        named.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        Self { named, all, are_samples, slow: None }
    }

    /// Names the command whose calls hold up others, whoever else wants the CPU, and says what it took.
    pub fn slow(&self) -> Option<String> {
        self.slow.as_ref().map(|(name, took)| format!("{} {took}", name.to_uppercase()))
    }

    /// Names the commands that took much of the time, with their shares: `KEYS 80 %, MGET 20 %`.
    pub fn named(&self) -> String {
        let share = |part: u64| 100.0 * part as f64 / self.all as f64;
        let named = self.named.iter().map(|(name, part)| format!("{} {:.0} %", name.to_uppercase(), share(*part)));
        Vec::from_iter(named).join(", ")
    }

    pub fn shares(&self) -> String {
        if self.named.is_empty() {
            return "Neither the server's counters of commands nor the profile name one that took much of it."
                .to_owned();
        }
        if self.are_samples {
            return format!("Shares are of the profile's {} samples of these times.", self.all);
        }
        let time = seconds(self.all as f64 / 1e6);
        let outer = self.named.iter().find(|(name, _)| calls_others(name)).filter(|_| self.named.len() > 1);
        let within =
            outer.map(|(name, _)| format!(" That of {} includes the commands that it calls.", name.to_uppercase()));
        let shares = format!("Shares are of the {time} that commands took, by the server's own counters.");
        shares + &within.unwrap_or_default()
    }

    /// Returns what to do in place of the command that took most of the time, if it has a better one, and the run that
    /// showed it, if it was tried.
    pub fn instead(&self, configuration: &Configuration) -> Option<(&'static str, Option<&'static str>)> {
        let (name, part) = self.named.first()?;
        (*part as f64 >= MOST * self.all as f64).then_some(())?;
        let name = name.to_lowercase();
        let is_slow = self.slow.as_ref().is_some_and(|(slow, _)| slow.eq_ignore_ascii_case(&name));
        let is = |names: &str| names.split(' ').any(|one| one == name);
        if is_slow && let Some((_, what, run)) = INSTEAD.iter().find(|(names, ..)| is(names)) {
            return Some((what, *run));
        }
        let what = match name.as_str() {
            "keys" => "Use SCAN instead of KEYS, which looks at every key in one go",
            "flushall" | "flushdb" => match configuration.lazyfree_lazy_user_flush {
                Some(true) => return None,
                Some(false) => "Use FLUSHALL ASYNC or FLUSHDB ASYNC, or set lazyfree-lazy-user-flush to yes",
                None => "Use FLUSHALL ASYNC or FLUSHDB ASYNC",
            },
            "del" => match configuration.lazyfree_lazy_user_del {
                Some(true) => return None,
                Some(false) => "Use UNLINK instead of DEL, or set lazyfree-lazy-user-del to yes",
                None => "Use UNLINK instead of DEL",
            },
            "eval" | "evalsha" | "fcall" => "Split the scripts: no other command is served while one runs",
            _ => return None,
        };
        Some((what, None))
    }
}

/// Says which command's calls have grown most in the burst, if any have.
pub fn grown(window: &Window<'_>) -> Option<String> {
    let (calm, spans) = (window.calm.first()?.unix_us(), &window.record.commands);
    let calls = |from_us: u64, to_us: u64| {
        let within = || spans.iter().filter(move |span| from_us < span.to_us && span.from_us < to_us);
        let us = within().fold(0, |sum: u64, span| sum.saturating_add(span.to_us.saturating_sub(span.from_us)));
        let rates = commands_in(within())
            .into_iter()
            .map(move |command| (command.name, command.calls as f64 * 1e6 / us as f64));
        (us > 0).then(|| rates.collect::<BTreeMap<_, _>>())
    };
    let before = calls(calm, window.began_us)?;
    let within = calls(window.began_us, window.evicted_until_us)?;
    let rates = within.iter().map(|(name, rate)| (name, *rate, before.get(name).copied().unwrap_or(0.0)));
    let has_grown = |(name, rate, before): &(&String, f64, f64)| {
        !name.is_empty() && *rate >= GROWN * before && rate - before >= GROWN_CALLS
    };
    let most = rates.filter(has_grown).max_by(|one, other| (one.1 - one.2).total_cmp(&(other.1 - other.2)));
    let (name, rate, before) = most.map(|(name, rate, before)| (name.to_uppercase(), rate, before))?;
    Some(format!("{name} was called {rate:.0} times a second, and {before:.0} times before it"))
}

/// Returns whether a profile was taken for most of these times.
fn is_of(profile: &Profile, times: &[StallTime]) -> bool {
    let [mut all, mut within] = [Duration::ZERO; 2];
    for time in times {
        let [from, to] = [time.from_us, time.to_us].map(Duration::from_micros);
        all = all.saturating_add(Duration::from_micros(time.length_us()));
        within = within.saturating_add(profile.within(from, to));
    }
    within >= all / 2
}

/// Returns the name of the command that a function implements: `mget` of `mgetCommand`, `eval` of `evalGenericCommand`.
fn command(function: &str) -> Option<&str> {
    let name = function.strip_suffix("Command")?;
    let name = name.strip_suffix("Generic").unwrap_or(name);
    (name != "process" && name.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(name)
}
