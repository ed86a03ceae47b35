//! The evidence: where the main thread's time went, where the memory is, and who waits or does not read.
//!
//! The rows of these three are made here for the pages, for the API and so for `watch`, and for what
//! [`explain`](crate::explain) says.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use evictscope_model::answers::{PeerCounts, PeersSeen, ThenAndNow};
use evictscope_telemetry::{CommandSpan, MemoryPart, MemoryParts, Moment, commands_in, microseconds};

use crate::text::{seconds, size};

/// How many commands are named of each time.
const NAMED: usize = 6;
/// A smaller share is not shown of a command, unless it has a larger one in the other time.
const LEAST: f64 = 0.001;
/// Less growth is not worth a word, bytes.
pub const LEAST_GROWTH: f64 = 1_048_576.0;
/// The most sentences of each kind.
const MOST: usize = 3;
/// Who has at least this share of the waiting requests is named.
const SHARE: f64 = 0.25;

/// The shares of a time; `None` for what is not known.
struct Shares {
    evictions: Option<f64>,
    expiry: Option<f64>,
    /// By name; without one, those that are not named.
    commands: BTreeMap<String, f64>,
    other: Option<f64>,
    asleep: Option<f64>,
    /// Part of all of these but the sleep: they are measured from their beginnings to their ends.
    no_cpu: Option<f64>,
}

impl Shares {
    fn of(moments: &[Moment], spans: &[CommandSpan]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        let length_us = last.unix_us().checked_sub(first.unix_us()).filter(|us| *us > 0)?;
        let share = |us: u64| us as f64 / length_us as f64;
        let grown = |of: fn(&Moment) -> Option<Duration>| {
            Some(share(microseconds(of(last)?).saturating_sub(microseconds(of(first)?))))
        };
        let evictions = evicting_us(moments).map(|us| share(us.round() as u64));
        let expiry = grown(|moment| moment.expiring);
        let (cpu, no_cpu) = (grown(|moment| moment.cpu), grown(|moment| moment.waiting));
        let all = first.unix_us()..=last.unix_us();
        let within = spans.iter().filter(|span| all.contains(&span.from_us.midpoint(span.to_us)));
        let commands: BTreeMap<_, _> =
            commands_in(within).into_iter().map(|command| (command.name, share(command.us))).collect();
        let busy = cpu.map(|cpu| cpu + no_cpu.unwrap_or(0.0));
        let known = evictions.unwrap_or(0.0) + expiry.unwrap_or(0.0) + commands.values().sum::<f64>();
        Some(Self {
            other: busy.map(|busy| (busy - known).clamp(0.0, 1.0)),
            asleep: busy.map(|busy| (1.0 - busy).max(0.0)),
            evictions,
            expiry,
            commands,
            no_cpu,
        })
    }

    /// Returns the commands to name.
    fn named(&self) -> impl Iterator<Item = &String> {
        let mut named: Vec<_> =
            self.commands.iter().filter(|(name, share)| !name.is_empty() && **share >= LEAST).collect();
        named.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        named.into_iter().take(NAMED).map(|(name, _)| name)
    }
}

/// Returns the time in evicting calls, microseconds. Where keys were evicted but not all calls observed, they are taken
/// to have had the same share of the time as where they were; `None` if none was observed then.
fn evicting_us(moments: &[Moment]) -> Option<f64> {
    let (mut seen_us, mut observed_us, mut all_us) = (0, 0, 0);
    for [before, after] in moments.array_windows() {
        let grown_us = |of: fn(&Moment) -> Duration| microseconds(of(after).saturating_sub(of(before)));
        let evicting_us = grown_us(|moment| moment.evicting);
        if evicting_us > 0 || before.evicted_keys != after.evicted_keys {
            seen_us += evicting_us;
            observed_us += grown_us(|moment| moment.observed);
            all_us += grown_us(|moment| moment.at);
        }
    }
    let share = if all_us == 0 { Some(0.0) } else { (observed_us > 0).then(|| seen_us as f64 / observed_us as f64) };
    share.map(|share| share.min(1.0) * all_us as f64)
}

/// Returns which shares of the main thread's time went where in two times, with what commands took in them; `None` if
/// that is not known. Returns no rows if nothing is known of either.
pub fn time_spent(times: [&[Moment]; 2], spans: Option<&[CommandSpan]>) -> Vec<ThenAndNow> {
    let shares = times.map(|moments| Shares::of(moments, spans.unwrap_or_default()));
    if shares.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut names: Vec<&String> = Vec::new();
    for name in shares.iter().rev().flatten().flat_map(Shares::named) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name: &str, share: &dyn Fn(&Shares) -> Option<f64>| {
        row(name, shares.each_ref().map(|shares| shares.as_ref().and_then(share)))
    };
    let unnamed = |shares: &Shares| {
        let rest = shares.commands.iter().filter(|(name, _)| !names.contains(name));
        Some(rest.fold(0.0, |sum, (_, share)| sum + share))
    };
    let mut rows = vec![row("Evictions", &|shares| shares.evictions), row("Expire cycles", &|shares| shares.expiry)];
    if spans.is_some() {
        let of = |name: &&String| {
            row(&name.to_uppercase(), &|shares| Some(shares.commands.get(*name).copied().unwrap_or(0.0)))
        };
        rows.extend(names.iter().map(of));
        rows.extend([row("Other commands", &unnamed), row("All else", &|shares| shares.other)]);
    } else {
        rows.push(row("Commands, all else", &|shares| shares.other));
    }
    rows.extend([row("Asleep", &|shares| shares.asleep), row("Without a CPU", &|shares| shares.no_cpu)]);
    rows
}

/// Returns all parts of memory that are or were there or are not known, the largest first, and their sum, bytes.
pub fn memory(then: Option<&MemoryParts>, now: &MemoryParts) -> Vec<ThenAndNow> {
    let then_of = |part| then.and_then(|then| then.get(part));
    let is_there = |part: &MemoryPart| now.get(*part) != Some(0) || then_of(*part) > Some(0);
    let mut parts: Vec<_> = MemoryPart::ALL.into_iter().filter(is_there).collect();
    parts.sort_by_key(|part| Reverse(now.get(*part)));
    let row = |name: &str, then_and_now: [Option<u64>; 2]| row(name, then_and_now.map(|bytes| Some(bytes? as f64)));
    let rows = parts.into_iter().map(|part| row(part.title(), [then_of(part), now.get(part)]));
    rows.chain([row("all (used_memory)", [then.map(|then| then.used), Some(now.used)])]).collect()
}

fn row(name: &str, [then, now]: [Option<f64>; 2]) -> ThenAndNow {
    ThenAndNow { name: name.to_owned(), then, now }
}

/// Returns which of the parts in the rows of [`memory`] has grown most, and by how many bytes; `None` if none has grown
/// by [`LEAST_GROWTH`].
pub fn grew_most(memory: &[ThenAndNow]) -> Option<(&ThenAndNow, f64)> {
    let (_sum, parts) = memory.split_last()?;
    let grown = parts.iter().filter_map(|part| Some((part, part.growth()?)));
    grown.max_by(|(_, left), (_, right)| left.total_cmp(right)).filter(|(_, bytes)| *bytes >= LEAST_GROWTH)
}

/// Returns what a look says of peers, each as a sentence without its full stop; none if nothing is outstanding.
pub fn who(seen: &PeersSeen) -> Vec<String> {
    let silent = seen.worst.iter().filter(|peer| peer.not_reading > 0).take(MOST).map(not_reading);
    let waiting = seen.all.waiting;
    let named = |peer: &&PeerCounts| peer.waiting > 0 && peer.waiting as f64 >= SHARE * waiting as f64;
    let mut most: Vec<_> = seen.worst.iter().filter(named).take(MOST).collect();
    if most.is_empty() {
        most.extend(seen.worst.iter().max_by_key(|peer| peer.waiting).filter(|peer| peer.waiting > 0));
    }
    silent.chain(most.into_iter().map(|peer| waits(peer, waiting))).collect()
}

fn not_reading(peer: &PeerCounts) -> String {
    let (bytes, longest) = (size(peer.untaken_bytes), seconds(peer.longest_untaken_seconds));
    let name = &peer.peer;
    match peer.not_reading {
        1 => format!("1 connection of {name} does not read: {bytes}, for {longest}"),
        many => format!("{many} connections of {name} do not read: {bytes}, for up to {longest}"),
    }
}

fn waits(peer: &PeerCounts, all: u64) -> String {
    let (name, longest) = (&peer.peer, seconds(peer.longest_wait_seconds));
    match (peer.waiting, all) {
        (_, 1) => format!("the request that waits comes from {name}, for {longest}"),
        (1, all) => format!("1 of {all} waiting requests comes from {name}, for {longest}"),
        (waiting, all) => format!("{waiting} of {all} waiting requests come from {name}, the first for {longest}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::answers::{PeerCounts, PeersSeen};
    use evictscope_telemetry::{CommandShare, CommandSpan, MemoryPart, MemoryParts, Moment};

    use super::{grew_most, memory, row, time_spent, who};

    #[test]
    fn shares_of_the_time_are_told_by_command() {
        let ms = |ms: u64| Some(Duration::from_millis(ms));
        let moment = |at: u64, cpu, waiting, evicting| Moment {
            at: Duration::from_millis(at),
            observed: Duration::from_millis(at),
            cpu: ms(cpu),
            waiting: ms(waiting),
            evicting: Duration::from_millis(evicting),
            ..Moment::default()
        };
        let moments = [moment(10_000, 0, 0, 0), moment(12_000, 1_500, 300, 400)];
        let command = |name: &str, us| CommandShare { name: name.to_owned(), calls: 1, us };
        let commands = vec![command("evalsha", 600_000), command("config|get", 200_000), command("ping", 10)];
        let span = CommandSpan { from_us: 10_500_000, to_us: 11_000_000, commands, ..CommandSpan::default() };
        let others = CommandSpan { rest: (9, 20_000), ..span.clone() };
        let rows = |times: [&[Moment]; 2], spans: Option<&[CommandSpan]>| {
            let text = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), crate::text::percent);
            let rows = time_spent(times, spans).into_iter();
            Vec::from_iter(rows.map(|row| format!("{} {} {}", row.name, text(row.then), text(row.now))))
        };
        assert_eq!(
            rows([&[], &moments], Some(&[others])),
            [
                "Evictions - 20 %",
                "Expire cycles - -",
                "EVALSHA - 30 %",
                "CONFIG|GET - 10 %",
                "Other commands - 1.0 %",
                "All else - 29 %",
                "Asleep - 10 %",
                "Without a CPU - 15 %"
            ]
        );
        let none = CommandSpan { commands: Vec::new(), ..span };
        assert_eq!(rows([&[], &moments], Some(&[none]))[2], "Other commands - 0 %", "and not -0 %");
        assert_eq!(rows([&[], &moments], None)[2], "Commands, all else - 70 %");
        assert_eq!(rows([&[], &moments[..1]], None), [""; 0]);
        // Of two seconds in which keys were evicted, calls were observed for a tenth; of two others, for none.
        let evicting = |at: u64, keys, observed, evicting| Moment {
            evicted_keys: Some(keys),
            observed: Duration::from_millis(observed),
            ..moment(at, 0, 0, evicting)
        };
        for (keys, observed, expected) in
            [(9, 200, "Evictions - 10 %"), (9, 0, "Evictions - -"), (0, 0, "Evictions - 0 %")]
        {
            let took = if observed > 0 { 40 } else { 0 };
            let moments =
                [evicting(0, 0, 0, 0), evicting(2_000, keys, observed, took), evicting(4_000, keys, observed, took)];
            assert_eq!(rows([&[], &moments], None)[0], expected);
        }
    }

    #[test]
    fn the_part_that_grew_most_is_found_from_a_mebibyte_on() {
        let parts = |used: u64, scripts| MemoryParts::new(used, [(MemoryPart::Scripts, Some(scripts))]);
        let mib = 1 << 20;
        for (then, now, expected) in [
            (parts(9 * mib, mib), parts(10 * mib, 2 * mib - 1), None),
            (parts(9 * mib, mib), parts(10 * mib, 2 * mib), Some(("scripts", 1_048_576.0))),
            (parts(9 * mib, mib), parts(12 * mib, 2 * mib), Some(("keys and the rest", 2_097_152.0))),
            (parts(9 * mib, 3 * mib), parts(8 * mib, mib), Some(("keys and the rest", 1_048_576.0))),
        ] {
            let rows = memory(Some(&then), &now);
            assert_eq!(grew_most(&rows).map(|(part, by)| (part.name.as_str(), by)), expected);
        }
        let row = |name: &str, now: Option<u64>| row(name, [None, now.map(|bytes| bytes as f64)]);
        let rows = memory(None, &parts(9 * mib, mib));
        let first = [("keys and the rest", Some(8 * mib)), ("scripts", Some(mib)), ("server as it started", None)];
        assert_eq!(rows[..3], first.map(|(name, now)| row(name, now)));
        assert_eq!((rows.last(), grew_most(&rows)), (Some(&row("all (used_memory)", Some(9 * mib))), None));
    }

    fn peer(peer: &str, waiting: u64, not_reading: u64) -> PeerCounts {
        PeerCounts {
            peer: peer.to_owned(),
            waiting,
            not_reading,
            longest_wait_seconds: 0.4,
            longest_untaken_seconds: 12.0,
            untaken_bytes: not_reading * (1 << 20),
            ..PeerCounts::default()
        }
    }

    #[test]
    fn the_worst_are_named() {
        let look = |waiting, worst: &[PeerCounts]| {
            let all = PeerCounts { waiting, ..PeerCounts::default() };
            who(&PeersSeen { all, worst: worst.to_vec() })
        };
        assert_eq!(look(0, &[]), [""; 0]);
        let both = [peer("10.0.4.0/24", 480, 0), peer("10.0.3.7", 4, 20), peer("pid 77", 0, 1)];
        let expected = [
            "20 connections of 10.0.3.7 do not read: 20.0 MiB, for up to 12.0 s",
            "1 connection of pid 77 does not read: 1.0 MiB, for 12.0 s",
            "480 of 512 waiting requests come from 10.0.4.0/24, the first for 400 ms",
        ];
        assert_eq!(look(512, &both), expected);
        assert_eq!(look(1, &[peer("::1", 1, 0)]), ["the request that waits comes from ::1, for 400 ms"]);
        let spread: Vec<_> = (1..=8).map(|host| peer(&format!("10.0.{host}.1"), host / 8 + 1, 0)).collect();
        assert_eq!(look(9, &spread), ["2 of 9 waiting requests come from 10.0.8.1, the first for 400 ms"]);
    }
}
