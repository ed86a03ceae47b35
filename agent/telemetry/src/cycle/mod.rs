//! Phases and bursts of the eviction cycle, and how far a server is from it.
//!
//! `saturated` begins with the first evicting call after a quiet time, at the moment at which the kernel timed it (or
//! [`EvictionActivity`], while calls are not observed). It ends with the last one, which is known to have been the last
//! when a quiet time has passed. If memory has fallen by then, `reclaim` follows ([`reclaim`]). So the boundaries of
//! `saturated` are exact, however rarely a server is observed. Memory and client buffers between two observations are
//! estimates.
//!
//! A cache that evicts steadily is in `saturated` for as long as it does so, and its burst never finishes. A cache that
//! evicts less often than once in each quiet time has many short, plain bursts.

pub(crate) mod activity;
pub(crate) mod burst_totals;
pub(crate) mod expired_share;
pub(crate) mod margins;
pub(crate) mod open_burst;
pub(crate) mod phases;
pub(crate) mod reclaim;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::activity::{EvictionActivity, QUIET};
use self::expired_share::ExpiredShare;
use self::open_burst::OpenBurst;
use crate::totals::Unreset;
use crate::{Burst, BurstTotals, Margins, Moment, Phase, Phases};

/// The number of finished bursts that are kept.
const KEPT: usize = 100;

/// Phases and bursts of one server.
#[derive(Clone, Debug)]
pub struct Cycle {
    pub phases: Phases,
    pub margins: Margins,
    activity: EvictionActivity,
    commands: Unreset,
    evicted_keys: Unreset,
    last: Option<Moment>,
    expired_share: ExpiredShare,
    /// The burst that is not over, or whose reclaim is not; `None` in `not_saturated`. Boxed, because it is large and
    /// seldom there.
    open: Option<Box<OpenBurst>>,
    /// The newest evicting call that was taken in.
    taken_in: Duration,
    /// The beginning of the newest burst that was taken in.
    begun: Duration,
    pub totals: BurstTotals,
    recent: Arc<VecDeque<Arc<Burst>>>,
}

impl Cycle {
    /// Begins with a server that was found at the monotonic time `at`.
    pub fn new(at: Duration) -> Self {
        Self {
            phases: Phases::new(at),
            margins: Margins::default(),
            activity: EvictionActivity::default(),
            commands: Unreset::default(),
            evicted_keys: Unreset::default(),
            last: None,
            expired_share: ExpiredShare::default(),
            open: None,
            taken_in: Duration::ZERO,
            begun: Duration::ZERO,
            totals: BurstTotals::new(),
            recent: Arc::default(),
        }
    }

    /// Takes in an observation if it is later than the last one. Returns the bursts that are now known to be over.
    pub fn observe(&mut self, seen: &Moment) -> Vec<Arc<Burst>> {
        let last = self.last;
        if seen.at <= last.map_or(self.phases.credited_to, |last| last.at) {
            return Vec::new();
        }
        let now = Moment {
            evictions: self.activity.follow(seen),
            commands: self.commands.advance(seen.commands),
            evicted_keys: self.evicted_keys.advance(seen.evicted_keys),
            ..*seen
        };
        let mut before = last.unwrap_or(Moment {
            at: self.phases.credited_to,
            // Counted since then; the server's own counters began long before.
            evicting_calls: 0,
            failed_calls: 0,
            stale_ratio: None,
            expired_held: None,
            ..now
        });
        self.last = Some(now);

        let mut finished = Vec::new();
        let evicting = newest_call(&now);
        let is_new = now.evictions.burst_began > self.begun || evicting > self.taken_in;
        let is_another = self.phases.phase == Phase::Saturated && now.evictions.burst_began > self.begun;
        if is_another {
            // The burst ended, and the next began, since the last observation or in the quiet time.
            let ended = now.evictions.burst_before_ended.min(now.at);
            if ended > before.at {
                let Moment { stale_ratio, expired_held, .. } = before;
                before = Moment { stale_ratio, expired_held, ..before.interpolate(&now, ended) };
            }
            finished.extend(self.close_at(&before, ended));
        }
        self.begun = self.begun.max(now.evictions.burst_began);
        self.taken_in = self.taken_in.max(evicting);

        if is_new && self.phases.phase != Phase::Saturated {
            let began = now.evictions.burst_began.clamp(before.at, now.at);
            if let Some(burst) = self.open.take() {
                let over = burst.reclaim_over_before(began);
                self.phases.enter(Phase::NotSaturated, over);
                finished.extend(burst.finish(over));
            }
            self.enter_saturated(began, &before, &now);
        }
        let over = match self.phases.phase {
            Phase::NotSaturated => {
                self.phases.credit(now.at);
                None
            }
            Phase::Saturated => self.watch_saturated(&now, evicting),
            Phase::Reclaim => self.watch_reclaim(&now),
        };
        self.margins.observe(&now, self.phases.phase);
        self.expired_share.saw(&now);
        finished.extend(over);
        finished.into_iter().map(|burst| self.keep(burst)).collect()
    }

    fn enter_saturated(&mut self, began: Duration, before: &Moment, now: &Moment) {
        let start = before.interpolate(now, began);
        let burst = OpenBurst::new(self.expired_share.before(began), start, before, now);
        self.totals.last_start = Some(burst.began);
        self.open = Some(Box::new(burst));
        self.phases.enter(Phase::Saturated, began);
    }

    fn watch_saturated(&mut self, now: &Moment, evicting: Duration) -> Option<Burst> {
        let burst = self.open.as_mut()?;
        burst.saw(now, evicting.clamp(burst.began, now.at.max(burst.began)));
        let ended = burst.ended();
        self.phases.credit(ended);
        if now.at.saturating_sub(ended) < QUIET {
            return None;
        }
        let Some(burst) = self.leave_saturated(ended) else { return self.watch_reclaim(now) };
        self.phases.credit(now.at);
        Some(burst)
    }

    /// Leaves `saturated` at the end of the last evicting call. Returns the burst if no reclaim follows.
    fn leave_saturated(&mut self, ended: Duration) -> Option<Burst> {
        if self.open.as_ref()?.has_reclaim() {
            self.phases.enter(Phase::Reclaim, ended);
            return None;
        }
        self.phases.enter(Phase::NotSaturated, ended);
        self.open.take()?.finish(ended)
    }

    fn watch_reclaim(&mut self, now: &Moment) -> Option<Burst> {
        let burst = self.open.as_mut()?;
        burst.saw(now, burst.ended());
        let over = burst.reclaim_over();
        self.phases.credit(over);
        if burst.goes_on_falling(now.at) {
            return None;
        }
        self.phases.enter(Phase::NotSaturated, over);
        self.phases.credit(now.at);
        self.open.take()?.finish(over)
    }

    /// Ends the open burst at `ended`, which is not later than `before`. If memory was seen to fall since, the reclaim
    /// goes on.
    fn close_at(&mut self, before: &Moment, ended: Duration) -> Option<Burst> {
        let burst = self.open.as_mut()?;
        burst.saw(before, ended.max(burst.ended()));
        let ended = burst.ended();
        self.phases.credit(ended);
        self.leave_saturated(ended)
    }

    fn keep(&mut self, burst: Burst) -> Arc<Burst> {
        self.totals.count(&burst);
        let burst = Arc::new(burst);
        let recent = Arc::make_mut(&mut self.recent);
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back(burst.clone());
        burst
    }

    /// Returns whether a burst, or the reclaim that follows it, is under way.
    pub fn has_open_burst(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the last finished bursts, the oldest first; 100 at most.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &Burst> {
        self.recent.iter().map(AsRef::as_ref)
    }
}

/// Returns until when evicting calls were made, as far as was seen.
fn newest_call(seen: &Moment) -> Duration {
    let times = &seen.evictions;
    let is_under_way = !times.since.is_zero();
    let newest = if is_under_way { seen.at } else { times.last };
    newest.min(seen.at)
}

#[cfg(test)]
mod tests;
