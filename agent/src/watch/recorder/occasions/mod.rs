//! Decides when a record is made of a server, and about which time. Pure: no clock of its own, no I/O.
//!
//! Records bursts that are not plain. Also records, if no recorded burst covers them: stalls of a second in all, even
//! in parts with less than half a minute between them; evicting calls that took a tenth of a second of CPU time;
//! refused commands; client buffers that take much of `maxmemory`; and keys that are lost. All are limited, so that a
//! server that is in trouble all day fills no disk:
//!
//! - Bursts: [`BURSTS`] at once, and one more every [`BURST_EVERY`]. GitLab's server had a burst every 7 to 15 minutes,
//!   so all of its bursts are recorded. Of a server with a burst every few seconds, at most 18 are in the first hour
//!   and 12 in each later hour. Half of those at once are kept for bursts that amplify themselves, so that other bursts
//!   leave room for them.
//! - Stalls, and slow calls: [`SOME`] of each at once, and one more every [`SOME_EVERY`]. A burst that does not end has
//!   no other records.
//! - Refused commands, client buffers, and lost keys: one of each every [`FEW_EVERY`].
//! - The end of the server: as `watch/endings.rs` allows.
//! - Requests: one at a time. Anyone who asks meanwhile gets the same record.
//!
//! All times are monotonic: the clock for the time since 1970 may be set meanwhile.

use std::sync::Arc;
use std::time::Duration;

use evictscope_records::Occasion;
use evictscope_telemetry::{Burst, BurstKind, RECORDED_BEFORE};

use super::losses::Loss;

/// How much of the time after is in a record.
pub const AFTER: Duration = Duration::from_secs(30);
/// How long before a record is due its profile ends at the latest: unwinding takes a moment.
const UNWINDING: Duration = Duration::from_secs(1);
/// The longest part of a stall that is recorded. With the time before and after, it fits in ten minutes of moments.
const LONGEST_STALL: Duration = Duration::from_secs(300);
/// A shorter stall is not recorded.
const LEAST_STALL: Duration = Duration::from_secs(1);
/// A stall is over when the server has not been stalled for this long. A server that works off a backlog has shorter
/// rounds.
const GAP: Duration = Duration::from_secs(1);
/// Short stalls with less than this between them are recorded together: what is after one of them is before the next.
const LULL: Duration = AFTER;
/// A shorter call is not recorded. The alert EvictscopeEvictionCallSlow has the same limit.
const LEAST_CALL: Duration = Duration::from_millis(100);
/// Client buffers are recorded when they take more of `maxmemory` than this, as in the alert
/// EvictscopeClientBuffersSwelling …
const SWOLLEN: f64 = 0.15;
/// … and again only once they have fallen below this.
const SHRUNK: f64 = 0.1;
/// The most bursts to record at once.
const BURSTS: f64 = 6.0;
/// The time in which one more burst may be recorded.
const BURST_EVERY: Duration = Duration::from_secs(300);
/// The most stalls to record at once, and the most slow calls.
const SOME: f64 = 3.0;
/// The time in which one more of them may be recorded.
const SOME_EVERY: Duration = Duration::from_secs(600);
/// The time in which one more record may be made of anything that may last for days.
const FEW_EVERY: Duration = Duration::from_secs(3_600);

/// What was seen of a server at a reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// For how long clients have been stalled in all.
    pub stalled: Option<Duration>,
    /// Whether a burst or its reclaim is under way.
    pub has_open_burst: bool,
    /// The longest evicting call since the last reading: when it ended, and the time that it took.
    pub call: Option<(Duration, Duration)>,
    /// How many commands were refused in all.
    pub refused: Option<u64>,
    /// The share of `maxmemory` that client buffers take.
    pub buffers: Option<f64>,
    /// Whether its keys are being lost.
    pub loss: Option<Loss>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedRecord {
    pub occasion: Occasion,
    /// When what it is about began.
    pub began: Duration,
    /// When that ended.
    pub ended: Duration,
    due: Duration,
    /// The burst, if it is about one that has ended.
    pub burst: Option<Arc<Burst>>,
}

impl WantedRecord {
    /// Returns one that has all of the time after what it is about.
    fn new(occasion: Occasion, began: Duration, ended: Duration) -> Self {
        Self { occasion, began, ended, due: ended + AFTER, burst: None }
    }

    fn is_asked(&self) -> bool {
        self.occasion == Occasion::Asked
    }

    fn is_due_soon(&self, at: Duration) -> bool {
        at + UNWINDING >= self.due
    }

    pub fn span(&self) -> (Duration, Duration) {
        (self.began.saturating_sub(RECORDED_BEFORE), self.ended + AFTER)
    }

    /// Returns whether it is about some of this time.
    fn is_within(&self, began: Duration, ended: Duration) -> bool {
        self.began <= ended && began <= self.ended + GAP
    }
}

/// Returns when a burst and its reclaim were over.
fn over(burst: &Burst) -> Duration {
    burst.started + burst.duration + burst.reclaim
}

/// A time in which the server is stalled.
#[derive(Clone, Debug)]
struct Stall {
    began: Duration,
    /// When it was last stalled.
    last: Duration,
    stalled: Duration,
    /// When its last part began, and for how long the server was stalled in that part.
    part: (Duration, Duration),
    /// The burst that it was in, if that has ended and is not recorded itself.
    burst: Option<Arc<Burst>>,
}

/// Decides which times of a server are recorded.
#[derive(Clone, Debug)]
pub struct Occasions {
    bursts: Allowance,
    stalls: Allowance,
    calls: Allowance,
    refusals: Allowance,
    swellings: Allowance,
    losses: Allowance,
    /// For how long the server had been stalled until the last reading.
    stalled: Option<Duration>,
    stall: Option<Stall>,
    /// How many commands had been refused until the last reading.
    refused: Option<u64>,
    are_buffers_swollen: bool,
    waiting: Vec<WantedRecord>,
}

impl Default for Occasions {
    fn default() -> Self {
        Self {
            bursts: Allowance::new(BURSTS, BURST_EVERY),
            stalls: Allowance::new(SOME, SOME_EVERY),
            calls: Allowance::new(SOME, SOME_EVERY),
            refusals: Allowance::new(1.0, FEW_EVERY),
            swellings: Allowance::new(1.0, FEW_EVERY),
            losses: Allowance::new(1.0, FEW_EVERY),
            stalled: None,
            stall: None,
            refused: None,
            are_buffers_swollen: false,
            waiting: Vec::new(),
        }
    }
}

impl Occasions {
    /// Takes in a reading. Returns whether the server was stalled since the last one.
    pub fn saw(&mut self, now: Duration, sight: &Sight) -> bool {
        let is_stalled = self.saw_stalls(now, sight);
        if let Some((ended, took)) = sight.call.filter(|call| call.1 >= LEAST_CALL) {
            self.saw_call(now, ended, took);
        }
        let before = std::mem::replace(&mut self.refused, sight.refused);
        if sight.refused > before && before.is_some() && self.refusals.take(now, 0.0) {
            self.wait_for(Occasion::Refused, now);
        }
        if let Some(loss) = sight.loss {
            self.saw_loss(now, loss);
        }
        if let Some(share) = sight.buffers {
            let were_swollen = self.are_buffers_swollen;
            self.are_buffers_swollen = share > if were_swollen { SHRUNK } else { SWOLLEN };
            let is_lost =
                self.waiting.iter().any(|other| other.occasion == Occasion::Lost && other.is_within(now, now));
            if self.are_buffers_swollen && !were_swollen && !is_lost && self.swellings.take(now, 0.0) {
                self.wait_for(Occasion::Buffers, now);
            }
        }
        is_stalled
    }

    /// Has a record made of what begins now, and of half a minute of it.
    fn wait_for(&mut self, occasion: Occasion, now: Duration) {
        self.waiting.push(WantedRecord { due: now + AFTER, ..WantedRecord::new(occasion, now, now + AFTER) });
    }

    fn saw_call(&mut self, now: Duration, ended: Duration, took: Duration) {
        let began = ended.saturating_sub(took);
        let mut waiting = self.waiting.iter_mut();
        if let Some(other) = waiting.find(|other| other.occasion == Occasion::Call) {
            // Its record has the time after it, too.
            other.ended = ended.max(other.ended);
        } else if !self.waiting.iter().any(|other| other.occasion == Occasion::Stall && other.is_within(began, ended))
            && self.calls.take(now, 0.0)
        {
            self.waiting.push(WantedRecord::new(Occasion::Call, began, ended));
        }
    }

    /// Has a record made of keys that are lost, until they no longer go so fast.
    fn saw_loss(&mut self, now: Duration, loss: Loss) {
        let mut waiting = self.waiting.iter_mut();
        let pending = waiting.find(|other| other.occasion == Occasion::Lost);
        match (loss, pending) {
            (_, Some(pending)) if now.saturating_sub(pending.began) < LONGEST_STALL => {
                (pending.ended, pending.due) = (now, now + AFTER);
            }
            (Loss::Began(began), None) if self.losses.take(now, 0.0) => {
                // What swells meanwhile is part of it.
                self.drop_within(&[Occasion::Buffers], began, now);
                self.waiting.push(WantedRecord::new(Occasion::Lost, began, now));
            }
            _ => {}
        }
    }

    fn saw_stalls(&mut self, now: Duration, sight: &Sight) -> bool {
        let before = std::mem::replace(&mut self.stalled, sight.stalled);
        let more = (sight.stalled.zip(before)).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        let is_stalled = !more.is_zero();
        let since = |stall: &Stall| now.saturating_sub(stall.last);
        let is_long = |stall: &Stall| now.saturating_sub(stall.began) >= LONGEST_STALL;
        let is_short = |stall: &mut Stall| stall.stalled < LEAST_STALL && (since(stall) > LULL || is_long(stall));
        let _ = self.stall.take_if(is_short);
        if is_stalled && (self.stall.is_some() || self.stalls.allows(now, 0.0)) {
            let began = now.saturating_sub(more);
            let stall = self.stall.get_or_insert(Stall {
                began,
                last: now,
                stalled: Duration::ZERO,
                part: (began, Duration::ZERO),
                burst: None,
            });
            if since(stall) > GAP {
                stall.part = (began, Duration::ZERO);
            }
            stall.last = now;
            stall.stalled += more;
            stall.part.1 += more;
        }
        let is_due = |stall: &mut Stall| {
            stall.stalled >= LEAST_STALL && (!sight.has_open_burst && since(stall) > GAP || is_long(stall))
        };
        if let Some(stall) = self.stall.take_if(is_due) {
            self.record(stall);
        }
        is_stalled
    }

    fn record(&mut self, stall: Stall) {
        self.stalls.take(stall.last, 0.0);
        // A long part is a stall by itself, whatever came before.
        let began = if stall.part.1 >= LEAST_STALL { stall.part.0 } else { stall.began };
        self.drop_within(&[Occasion::Call], began, stall.last);
        // Buffers that swell while clients are stalled do so because of the stall. If they swelled before, that is
        // another matter.
        self.waiting.retain(|other| other.occasion != Occasion::Buffers || other.began < began);
        let record = WantedRecord::new(Occasion::Stall, began, stall.last);
        self.waiting.push(WantedRecord { burst: stall.burst, ..record });
    }

    /// Drops records of these kinds that another record of this time covers.
    fn drop_within(&mut self, kinds: &[Occasion], began: Duration, ended: Duration) {
        let is_covered = |other: &WantedRecord| kinds.contains(&other.occasion) && other.is_within(began, ended);
        self.waiting.retain(|other| !is_covered(other));
    }

    /// Takes in a burst that has ended. Returns whether it will be recorded.
    pub fn ended(&mut self, now: Duration, burst: &Arc<Burst>) -> bool {
        let is_recorded = match burst.kind().0 {
            BurstKind::SelfAmplifying => self.bursts.take(now, 0.0),
            BurstKind::Stalling | BurstKind::Unknown => self.bursts.take(now, BURSTS / 2.0),
            BurstKind::Plain => false,
        };
        let is_in = |stall: &Stall| stall.began <= over(burst);
        if is_recorded {
            let _ = self.stall.take_if(|stall| is_in(stall));
            let covered = [Occasion::Stall, Occasion::Call, Occasion::Buffers, Occasion::Lost];
            self.drop_within(&covered, burst.started, over(burst));
            let record = WantedRecord::new(Occasion::Burst, burst.started, over(burst));
            self.waiting.push(WantedRecord { burst: Some(burst.clone()), ..record });
        } else {
            if let Some(stall) = self.stall.as_mut().filter(|stall| is_in(stall)) {
                stall.burst = Some(burst.clone());
            }
            let is_lost = |other: &&mut WantedRecord| {
                other.occasion == Occasion::Lost && other.is_within(burst.started, over(burst))
            };
            if let Some(lost) = self.waiting.iter_mut().find(is_lost) {
                lost.burst = Some(burst.clone());
            }
        }
        is_recorded
    }

    pub fn ask(&mut self, now: Duration) {
        if !self.waiting.iter().any(WantedRecord::is_asked) {
            self.waiting.push(WantedRecord::new(Occasion::Asked, now, now));
        }
    }

    /// Returns whether a record is about to be made, and its profile must end.
    pub fn is_due(&self, at: Duration) -> bool {
        self.waiting.iter().any(|wanted| wanted.is_due_soon(at))
    }

    /// Returns whether a record that was asked for is still to come, and its profile still goes on.
    pub fn is_asked(&self, at: Duration) -> bool {
        self.waiting.iter().any(|wanted| wanted.is_asked() && !wanted.is_due_soon(at))
    }

    /// Takes the records whose time is over.
    pub fn due(&mut self, at: Duration) -> Vec<WantedRecord> {
        self.waiting.extract_if(.., |wanted| wanted.due <= at).collect()
    }

    /// Takes all records, including that of a stall under way, because nothing more will be known; if the server has
    /// `ended`, and that is to be recorded, also one of that moment.
    pub fn finish(&mut self, ended: Option<Duration>) -> Vec<WantedRecord> {
        let is_long = |stall: &mut Stall| stall.stalled >= LEAST_STALL;
        if let Some(stall) = self.stall.take_if(is_long) {
            self.record(stall);
        }
        self.waiting.extend(ended.map(|at| WantedRecord { due: at, ..WantedRecord::new(Occasion::Ended, at, at) }));
        std::mem::take(&mut self.waiting)
    }
}

/// What is left of an allowance.
#[derive(Clone, Debug)]
pub struct Allowance {
    most: f64,
    every: Duration,
    left: f64,
    /// When that was so.
    at: Option<Duration>,
}

impl Allowance {
    /// Allows `most` at once, and one more per `every`.
    pub fn new(most: f64, every: Duration) -> Self {
        Self { most, every, left: most, at: None }
    }

    /// Returns whether there may be one more while `reserve` is kept for others.
    pub fn allows(&mut self, at: Duration, reserve: f64) -> bool {
        let since = self.at.replace(at);
        let more = since.map_or(Duration::ZERO, |since| at.saturating_sub(since));
        self.left = self.most.min(self.left + more.div_duration_f64(self.every));
        self.left >= reserve + 1.0
    }

    /// Takes one if that is allowed.
    pub fn take(&mut self, at: Duration, reserve: f64) -> bool {
        let is_allowed = self.allows(at, reserve);
        if is_allowed {
            self.left -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests;
