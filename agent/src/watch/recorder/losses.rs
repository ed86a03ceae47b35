//! Notices that a server loses its cache: a tenth of its keys within a minute, whether or not a client was stalled.
//!
//! Keys are lost when they are evicted and their number falls, or when they are evicted three times as fast as
//! before; when they expire right after a replica was promoted; or when they go at once and were neither evicted
//! nor expired: a flush. A cache that evicts calmly has as many keys as before.

use std::collections::VecDeque;
use std::time::Duration;

use evictscope_web::KeyLosses;

/// The share of all keys …
const SHARE: f64 = 0.1;
/// … within this time that make a loss.
const WITHIN: Duration = Duration::from_secs(60);
/// Fewer keys are no cache to lose: queues come and go.
const LEAST_KEYS: u64 = 1_000;
/// Evictions are unusual if they are this many times as many as in as long a time before …
const UNUSUAL: f64 = 3.0;
/// … of which at least this much is known. An agent that is younger compares them with all that it knows, …
const LEAST_KNOWN: Duration = Duration::from_secs(15);
/// … which is this much.
const LEAST_OF_YOUNG: Duration = Duration::from_secs(5);
/// What was removed within this time was removed at once: keys are counted once a second.
const AT_ONCE: Duration = Duration::from_secs(3);

/// What the server has counted at a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Keys in all databases.
    pub keys: u64,
    pub evicted: u64,
    pub expired: u64,
    pub is_replica: bool,
}

/// What is known of the last two minutes.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    counts: VecDeque<(Duration, KeyCounts)>,
    is_losing: bool,
    /// How often they began; `None` as long as no keys were counted.
    pub began: Option<KeyLosses>,
}

/// The counter of losses of a kind.
type Kind = fn(&mut KeyLosses) -> &mut u64;

/// Keys are being lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It was noticed now, and began then.
    Began(Duration),
    /// They still go as fast.
    GoesOn,
}

impl Losses {
    /// Takes in a reading at which keys were counted.
    pub fn saw(&mut self, at: Duration, now: KeyCounts) -> Option<Loss> {
        // Its counters were reset.
        if self.counts.back().is_some_and(|(_, last)| now.evicted < last.evicted || now.expired < last.expired) {
            self.counts.clear();
        }
        while self.counts.pop_front_if(|(then, _)| *then + 2 * WITHIN < at).is_some() {}
        let last = self.counts.back().copied();
        self.counts.push_back((at, now));
        let began = self.loss(at, now);
        let counted = self.began.get_or_insert_default();
        let was_losing = std::mem::replace(&mut self.is_losing, began.is_some());
        let goes_on = || {
            let (then, last) = last?;
            let gone = last.keys.saturating_sub(now.keys).max(now.evicted - last.evicted) as f64;
            let rate = gone / at.saturating_sub(then).as_secs_f64();
            (rate * WITHIN.as_secs_f64() >= SHARE * last.keys.max(LEAST_KEYS) as f64).then_some(Loss::GoesOn)
        };
        if was_losing {
            return goes_on();
        }
        began.map(|(began, kind)| {
            *kind(counted) += 1;
            Loss::Began(began)
        })
    }

    /// Returns since when keys have gone, and how, if they are being lost.
    fn loss(&self, at: Duration, now: KeyCounts) -> Option<(Duration, Kind)> {
        let since = self.counts.partition_point(|(then, _)| *then + WITHIN < at);
        let within = || self.counts.range(since..);
        let first = within().next()?.1;
        let most = within().map(|(_, counts)| counts.keys).max().filter(|most| *most >= LEAST_KEYS)?;
        let is_much = |keys: u64| keys as f64 >= SHARE * most as f64;
        let fallen = most - now.keys;
        let [evicted, expired] = [now.evicted - first.evicted, now.expired - first.expired];
        let was_promoted = !now.is_replica && within().any(|(_, counts)| counts.is_replica);
        // When all but a twentieth of it was still to come.
        let since = |all: u64, counter: fn(&KeyCounts) -> u64, kind: Kind| {
            let is_to_come = |(_, then): &&(Duration, KeyCounts)| 20 * (counter(&now) - counter(then)) >= 19 * all;
            within().rfind(is_to_come).map(|(then, counts)| (*then, *counts, kind))
        };
        let (oldest, before) = *self.counts.front()?;
        if is_much(evicted) {
            let (began, counts, kind) = since(evicted, |counts| counts.evicted, |losses| &mut losses.evicted)?;
            let is_young = at.saturating_sub(oldest) < WITHIN + LEAST_KNOWN;
            let (from, counts, least) =
                if is_young { (began, counts, LEAST_OF_YOUNG) } else { (within().next()?.0, first, LEAST_KNOWN) };
            let (length, known) = (at.saturating_sub(from), from.saturating_sub(oldest));
            let usual = (counts.evicted - before.evicted) as f64 / known.as_secs_f64() * length.as_secs_f64();
            if is_much(fallen) || known >= least && evicted as f64 >= UNUSUAL * usual {
                return Some((began, kind));
            }
        }
        if is_much(expired) && was_promoted {
            let since = since(expired, |counts| counts.expired, |losses| &mut losses.expired);
            return since.map(|(then, _, kind)| (then, kind));
        }
        let removed = within().zip(within().skip(1)).find(|((then, before), (later, after))| {
            let counted = (after.evicted - before.evicted) + (after.expired - before.expired);
            let removed = before.keys.saturating_sub(after.keys).saturating_sub(counted);
            *later - *then <= AT_ONCE && is_much(removed)
        });
        removed.map(|((then, _), _)| (*then, (|losses| &mut losses.removed) as Kind))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KeyCounts, Loss, Losses};

    const SECOND: Duration = Duration::from_secs(1);
    const KEYS: u64 = 100_000;

    /// Follows a server for five minutes; returns when losses began, and for how many seconds they went on.
    fn follow(counts: impl Fn(u64) -> KeyCounts) -> (Vec<u64>, usize) {
        let mut losses = Losses::default();
        let seen = Vec::from_iter((0..300).filter_map(|second| losses.saw(SECOND * second as u32, counts(second))));
        let began = |loss: &Loss| if let Loss::Began(at) = loss { Some(at.as_secs()) } else { None };
        let began = Vec::from_iter(seen.iter().filter_map(began));
        let counted = losses.began.map(|of| of.evicted + of.expired + of.removed);
        assert_eq!(counted, Some(began.len() as u64));
        (began, seen.iter().filter(|loss| **loss == Loss::GoesOn).count())
    }

    /// What has happened after 150 s, of `all` in 10 s.
    fn after(second: u64, all: u64) -> u64 {
        all * second.clamp(150, 160).saturating_sub(150) / 10
    }

    #[test]
    fn a_tenth_of_all_keys_that_go_in_a_minute_are_a_loss() {
        let none = (vec![], 0);
        let evicted = |all: u64| {
            follow(|second| KeyCounts {
                keys: KEYS - after(second, all),
                evicted: after(second, all),
                ..KeyCounts::default()
            })
        };
        let (began, goes_on) = evicted(KEYS / 2);
        assert_eq!((began, goes_on > 5), (vec![150], true));
        assert_eq!(evicted(KEYS / 10 - 10), none);
        // Those of a cache that evicts calmly are replaced.
        let churn = |each: u64, more: u64| {
            follow(|second| KeyCounts {
                keys: KEYS,
                evicted: each * second + after(second, more),
                ..KeyCounts::default()
            })
            .0
        };
        assert_eq!(churn(1_000, 0), [0; 0]);
        assert_eq!(churn(100, KEYS / 5).len(), 1, "all at once others take their place");
        assert_eq!(churn(1_000, KEYS / 5), [0; 0]);
        // Fresh keys are evicted when the agent has known it for some seconds.
        let young = |known: u64| {
            let mut losses = Losses::default();
            let saw = |second: u64| {
                let evicted = KEYS / 5 * u64::from(second >= known);
                losses.saw(SECOND * second as u32, KeyCounts { keys: KEYS, evicted, ..KeyCounts::default() })
            };
            Vec::from_iter((0..known + 3).filter_map(saw)).first().copied()
        };
        assert_eq!([young(5), young(6)], [None, Some(Loss::Began(5 * SECOND))]);
        let flushed = |keys: u64, left: u64| {
            follow(|second| KeyCounts { keys: if second < 150 { keys } else { left }, ..KeyCounts::default() })
        };
        assert_eq!(flushed(KEYS, 0).0, [149]);
        assert_eq!(flushed(KEYS, KEYS - KEYS / 10 + 10), none);
        assert_eq!(flushed(900, 0), none, "a queue");
        let expired = |is_replica: bool| {
            let is_replica = move |second| is_replica && second < 140;
            follow(|second| KeyCounts {
                keys: KEYS - after(second, KEYS / 2),
                expired: after(second, KEYS / 2),
                is_replica: is_replica(second),
                ..KeyCounts::default()
            })
        };
        assert_eq!(expired(true).0, [150]);
        assert_eq!(expired(false), none, "keys that expire as they should");
        // Deleted one by one.
        assert_eq!(follow(|second| KeyCounts { keys: KEYS - 300 * second, ..KeyCounts::default() }), none);
    }
}
