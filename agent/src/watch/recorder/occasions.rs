//! When a record is made of a server, and of which time. Pure: no clock of its own, no I/O.
//!
//! A burst that is not plain is recorded, and so is a stall of a second that no recorded burst covers. Both are limited,
//! so that a server whose bursts follow each other all day fills no disk:
//!
//! - Bursts: [`BURSTS`] at once, and one more every [`BURST_EVERY`]. GitLab's server had a burst every 7 to 15
//!   minutes, so all of its bursts are recorded. Of one that has a burst every few seconds, at most 18 are in the first
//!   hour and 12 in each hour after it. Half of those at once are kept for bursts that amplify themselves, so that bursts of
//!   an unknown kind leave room for them.
//! - Stalls: one every [`STALL_EVERY`]. A burst that does not end has no other records.
//! - What is asked for: one at a time. Whoever asks meanwhile gets the same one.
//!
//! What a record is about is told in time since 1970. When it is made is not: that clock may be set.

use std::sync::Arc;
use std::time::Duration;

use evictscope_records::Occasion;
use evictscope_telemetry::{Burst, BurstKind};

/// How much of the time before is in a record.
pub const BEFORE: Duration = Duration::from_secs(60);
/// How much of the time after.
pub const AFTER: Duration = Duration::from_secs(30);
/// How long before a record is due its profile ends at the latest: it takes a moment until that is unwound.
const UNWINDING: Duration = Duration::from_secs(1);
/// The longest part of a stall that is recorded. With what is before and after, ten minutes of moments have it.
const LONGEST_STALL: Duration = Duration::from_secs(300);
/// A shorter stall is not recorded.
const LEAST_STALL: Duration = Duration::from_secs(1);
/// A stall is over when the server was not stalled for this long. Rounds of a server that works off a backlog are shorter.
const GAP: Duration = Duration::from_secs(1);
/// Most bursts that are recorded at once.
const BURSTS: f64 = 6.0;
/// The time in which one more burst may be recorded.
const BURST_EVERY: Duration = Duration::from_secs(300);
/// The least time between the beginnings of two stalls that are recorded.
const STALL_EVERY: Duration = Duration::from_secs(600);

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Monotonic.
    pub at: Duration,
    /// Since 1970.
    pub unix: Duration,
}

/// A record that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Why.
    pub occasion: Occasion,
    /// When what it is about began, since 1970.
    pub began: Duration,
    /// When that ended, since 1970.
    pub ended: Duration,
    /// When it is made, monotonic.
    due: Duration,
    /// The burst, where it is about one that has ended.
    pub burst: Option<Arc<Burst>>,
}

impl Wanted {
    fn is_asked(&self) -> bool {
        self.occasion == Occasion::Asked
    }

    /// Returns the time that is in the record, since 1970.
    pub fn span(&self) -> (Duration, Duration) {
        (self.began.saturating_sub(BEFORE), self.ended + AFTER)
    }
}

/// Tells whether the record of a burst has what this one is about.
fn is_covered(wanted: &Wanted, burst: &Burst) -> bool {
    wanted.occasion == Occasion::Stall
        && wanted.began <= over(burst)
        && burst.started <= wanted.ended + GAP
}

/// Returns when a burst and its reclaim were over.
fn over(burst: &Burst) -> Duration {
    burst.started + burst.duration + burst.reclaim
}

/// A time in which the server is stalled.
#[derive(Clone, Debug)]
struct Stall {
    began: Now,
    /// When it was last stalled.
    last: Now,
    stalled: Duration,
    /// The burst that it was in, where that has ended and is not recorded itself.
    burst: Option<Arc<Burst>>,
}

/// Decides of which times of a server records are made.
#[derive(Clone, Debug)]
pub struct Occasions {
    /// How many bursts may be recorded now.
    allowed: f64,
    /// When that was so.
    allowed_at: Option<Duration>,
    /// The time for which the server was stalled until the last reading.
    stalled: Option<Duration>,
    stall: Option<Stall>,
    /// When the stall began that was recorded last.
    last_stall: Option<Duration>,
    waiting: Vec<Wanted>,
}

impl Occasions {
    /// Returns those of a server that was not read yet.
    pub fn new() -> Self {
        Self {
            allowed: BURSTS,
            allowed_at: None,
            stalled: None,
            stall: None,
            last_stall: None,
            waiting: Vec::new(),
        }
    }

    /// Takes in a reading: for how long the server has been stalled in all, and whether a burst or its reclaim is under
    /// way. Returns whether it was stalled since the last reading.
    pub fn saw(&mut self, now: Now, stalled: Option<Duration>, has_open_burst: bool) -> bool {
        let before = std::mem::replace(&mut self.stalled, stalled);
        let more = (stalled.zip(before))
            .map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        let is_stalled = !more.is_zero();
        let at = now.at;
        let is_over = |stall: &Stall| at.saturating_sub(stall.last.at) > GAP;
        let is_short = |stall: &mut Stall| stall.stalled < LEAST_STALL && is_over(stall);
        let _ = self.stall.take_if(is_short);
        let may_begin = self.last_stall.is_none_or(|last| last + STALL_EVERY <= at);
        if is_stalled && (self.stall.is_some() || may_begin) {
            let stall = self.stall.get_or_insert(Stall {
                began: Now {
                    at: at.saturating_sub(more),
                    unix: now.unix.saturating_sub(more),
                },
                last: now,
                stalled: Duration::ZERO,
                burst: None,
            });
            stall.last = now;
            stall.stalled += more;
        }
        let is_due = |stall: &mut Stall| {
            let is_long = at.saturating_sub(stall.began.at) >= LONGEST_STALL;
            stall.stalled >= LEAST_STALL && (!has_open_burst && is_over(stall) || is_long)
        };
        if let Some(stall) = self.stall.take_if(is_due) {
            self.record(stall);
        }
        is_stalled
    }

    fn record(&mut self, stall: Stall) {
        self.last_stall = Some(stall.began.at);
        self.waiting.push(Wanted {
            occasion: Occasion::Stall,
            began: stall.began.unix,
            ended: stall.last.unix,
            due: stall.last.at + AFTER,
            burst: stall.burst,
        });
    }

    /// Takes in a burst that has ended. Returns whether it will be recorded.
    pub fn ended(&mut self, now: Now, burst: &Arc<Burst>) -> bool {
        let is_recorded = self.is_allowed(now.at, burst.kind().0);
        let is_in = |stall: &Stall| stall.began.unix <= over(burst);
        if is_recorded {
            let _ = self.stall.take_if(|stall| is_in(stall));
            self.waiting.retain(|other| !is_covered(other, burst));
            self.waiting.push(Wanted {
                occasion: Occasion::Burst,
                began: burst.started,
                ended: over(burst),
                due: now.at.saturating_sub(now.unix.saturating_sub(over(burst))) + AFTER,
                burst: Some(burst.clone()),
            });
        } else if let Some(stall) = self.stall.as_mut().filter(|stall| is_in(stall)) {
            stall.burst = Some(burst.clone());
        }
        is_recorded
    }

    /// Returns whether a burst of this kind may be recorded, and counts it.
    fn is_allowed(&mut self, at: Duration, kind: BurstKind) -> bool {
        let reserve = match kind {
            BurstKind::SelfAmplifying => 0.0,
            BurstKind::Stalling | BurstKind::Unknown => BURSTS / 2.0,
            BurstKind::Plain => return false,
        };
        let since = self.allowed_at.replace(at);
        let more = since.map_or(Duration::ZERO, |since| at.saturating_sub(since));
        self.allowed = BURSTS.min(self.allowed + more.div_duration_f64(BURST_EVERY));
        let is_allowed = self.allowed >= reserve + 1.0;
        if is_allowed {
            self.allowed -= 1.0;
        }
        is_allowed
    }

    /// Asks for a record of now.
    pub fn ask(&mut self, now: Now) {
        if !self.waiting.iter().any(Wanted::is_asked) {
            self.waiting.push(Wanted {
                occasion: Occasion::Asked,
                began: now.unix,
                ended: now.unix,
                due: now.at + AFTER,
                burst: None,
            });
        }
    }

    /// Tells whether a record that was asked for is waited for, and its profile still goes on.
    pub fn is_asked(&self, at: Duration) -> bool {
        let goes_on = |wanted: &Wanted| wanted.is_asked() && at + UNWINDING < wanted.due;
        self.waiting.iter().any(goes_on)
    }

    /// Takes the records whose time is over.
    pub fn due(&mut self, at: Duration) -> Vec<Wanted> {
        let is_due = |wanted: &mut Wanted| wanted.due <= at;
        self.waiting.extract_if(.., is_due).collect()
    }

    /// Takes all records, as nothing more will be known, and that of a stall that is under way.
    pub fn finish(&mut self) -> Vec<Wanted> {
        let is_long = |stall: &mut Stall| stall.stalled >= LEAST_STALL;
        if let Some(stall) = self.stall.take_if(is_long) {
            self.record(stall);
        }
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests;
