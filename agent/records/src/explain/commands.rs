//! Finds out which commands ran while clients were stalled: by the server's own counters, or, where these were not
//! found or what ran had not ended, by the profile.

use std::collections::BTreeMap;
use std::time::Duration;

use evictscope_telemetry::{CommandSpan, StallCause, StallTime, calls_others, commands_in};

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
/// Its calls have grown in a burst if there are this many times as many a second as before …
const GROWN: f64 = 1.5;
/// … and this many more.
const GROWN_CALLS: f64 = 100.0;

/// The commands that were running.
pub struct Commands {
    /// The commands to name, with their microseconds or samples, the most first.
    named: Vec<(String, u64)>,
    /// Those of all commands.
    all: u64,
    are_samples: bool,
}

impl Commands {
    /// Finds them for the time in which commands stalled clients. The counters have what ended in that time; if that is
    /// less than half of it, the profile is asked, if it was taken for most of the time.
    pub fn of(window: &Window<'_>) -> Self {
        let times = Vec::from_iter(window.stall_times().filter(|stall| stall.by == StallCause::Commands));
        let stalled_us = times.iter().fold(0, |sum: u64, time| sum.saturating_add(time.length_us()));
        let counted = Self::counted(window);
        let profile = window.record.profile.as_ref().ok();
        let profile = profile.filter(|profile| counted.all < stalled_us / 2 && is_of(profile, &times));
        profile
            .map(|profile| Self::within(profile, &times))
            .filter(|sampled| !sampled.named.is_empty())
            .unwrap_or(counted)
    }

    /// Finds those that ended while clients were stalled, whatever stalled them, by the server's own counters.
    pub fn counted(window: &Window<'_>) -> Self {
        let stalls = Vec::from_iter(window.stall_times());
        let is_stall = |span: &&CommandSpan| {
            span.is_stalled && stalls.iter().any(|stall| stall.from_us <= span.to_us && span.from_us <= stall.to_us)
        };
        let spans = window.record.commands.iter().filter(is_stall);
        Self::most(commands_in(spans).into_iter().map(|command| (command.name, command.us)), false)
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
        Self::most(samples.into_iter().map(|(name, samples)| (name.to_owned(), samples)), true)
    }

    /// Names those with most of the time, or of the samples. What is not known by name has none.
    fn most(parts: impl Iterator<Item = (String, u64)>, are_samples: bool) -> Self {
        let mut named = Vec::from_iter(parts);
        let all = named.iter().fold(0, |sum: u64, (_, part)| sum.saturating_add(*part));
        let least = if are_samples { LEAST_SAMPLES } else { 1 };
        named.retain(|(name, part)| !name.is_empty() && all >= least && *part as f64 >= NAMED * all as f64);
        named.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        Self { named, all, are_samples }
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

    /// Returns what to do in place of the command that took most of the time, if it has a better one.
    pub fn instead(&self, configuration: &Configuration) -> Option<&'static str> {
        let (name, part) = self.named.first()?;
        (*part as f64 >= MOST * self.all as f64).then_some(())?;
        Some(match name.to_lowercase().as_str() {
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
        })
    }
}

/// Says which command's calls have grown most in the burst, if any have.
pub fn grown(window: &Window<'_>) -> Option<String> {
    let (calm, spans) = (window.calm.first()?.unix_us(), &window.record.commands);
    let calls = |from_us: u64, to_us: u64| {
        let within = || spans.iter().filter(move |span| from_us <= span.from_us && span.to_us <= to_us);
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
