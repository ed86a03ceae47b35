//! Finds in the profile which commands ran while clients were stalled by commands.

use std::collections::BTreeMap;
use std::time::Duration;

use evictscope_telemetry::{StallCause, StallTime};

use super::window::Window;
use crate::profile::Profile;

/// A command is named from this share of the samples on …
const NAMED: f64 = 0.1;
/// … of at least this many.
const LEAST_SAMPLES: u64 = 5;
/// A command with this share is the one to act on.
const MOST: f64 = 0.5;

/// The commands that were running.
#[derive(Default)]
pub struct Commands<'a> {
    /// The commands to name, with their samples, the most first.
    named: Vec<(&'a str, u64)>,
    all: u64,
}

impl<'a> Commands<'a> {
    /// Finds them. There are none if the profile was not taken for most of the time.
    pub fn of(window: &Window<'a>) -> Self {
        let times = Vec::from_iter(window.stall_times().filter(|stall| stall.by == StallCause::Commands));
        let profile = window.record.profile.as_ref().ok();
        let profile = profile.filter(|profile| is_of(profile, &times));
        profile.map_or_else(Self::default, |profile| Self::within(profile, &times))
    }

    fn within(profile: &'a Profile, times: &[StallTime]) -> Self {
        let is_within = |at_ms: &&u32| {
            let at_us = profile.began_us.saturating_add(1_000 * u64::from(**at_ms));
            times.iter().any(|time| (time.from_us..time.to_us).contains(&at_us))
        };
        let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
        let mut all = 0;
        for stack in &profile.stacks {
            let within = stack.at_ms.iter().filter(is_within).count() as u64;
            all += within;
            let names = stack.frames.iter().filter_map(|frame| profile.functions.get(*frame as usize));
            // The outermost one: a script calls others.
            let command = names.filter_map(|name| command(name)).next();
            if let Some(command) = command {
                *samples.entry(command).or_default() += within;
            }
        }
        let mut named: Vec<_> = samples.into_iter().collect();
        named.retain(|(_, samples)| all >= LEAST_SAMPLES && *samples as f64 >= NAMED * all as f64);
        named.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        Self { named, all }
    }

    /// Returns how many samples there are from these times.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Names the commands that took much of the time, with their shares: `KEYS 80 %, MGET 20 %`.
    pub fn named(&self) -> String {
        let share = |samples: u64| 100.0 * samples as f64 / self.all as f64;
        let named = self.named.iter();
        let named = named.map(|(name, samples)| format!("{} {:.0} %", name.to_uppercase(), share(*samples)));
        Vec::from_iter(named).join(", ")
    }

    /// Returns what to do in place of the command that took most of the time, if it has a better one.
    pub fn instead(&self) -> Option<&'static str> {
        let (name, samples) = self.named.first()?;
        (*samples as f64 >= MOST * self.all as f64).then_some(())?;
        Some(match name.to_lowercase().as_str() {
            "keys" => "Use SCAN instead of KEYS, which looks at every key in one go",
            "flushall" | "flushdb" => {
                "Use FLUSHALL ASYNC or FLUSHDB ASYNC, or set lazyfree-lazy-user-flush to yes (Redis 6.2 or later)"
            }
            "del" => "Use UNLINK instead of DEL, or set lazyfree-lazy-user-del to yes",
            "eval" | "evalsha" | "fcall" => "Split the scripts: no other command is served while one runs",
            _ => return None,
        })
    }
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
