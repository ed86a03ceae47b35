//! The moments of the last ten minutes of a server, within a bound.

use std::collections::VecDeque;
use std::time::Duration;

use super::units::microseconds;
use super::{Moment, StallCause};

/// For how long moments are kept.
const SPAN: Duration = Duration::from_secs(600);
/// For how long all of them are kept. With ten a second before that, a server that evicts all the time takes 4.5 MB at most, and one that does not 2 MB.
const DETAILED: Duration = Duration::from_secs(180);
/// Closer ones are left out: while a server is sampled, it is read at odd times too.
const CLOSEST: Duration = Duration::from_millis(10);
/// Least time between two samples: ten a second, give or take what a reading comes early.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(90);

/// A moment, and what only its timeline needs of it.
#[derive(Clone, Copy, Debug)]
struct Kept {
    at: Duration,
    moment: Moment,
    is_sample: bool,
}

impl Kept {
    /// Returns the moment, as the clock that tells the time since 1970 has it now.
    fn moment(&self, since_1970: Duration) -> Moment {
        Moment {
            unix_us: microseconds(since_1970.saturating_add(self.at)),
            ..self.moment
        }
    }
}

/// The moments of the last ten minutes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Samples only.
    older: VecDeque<Kept>,
    recent: VecDeque<Kept>,
    last_sample: Option<Duration>,
    /// What clients were stalled by in moments that were left out since the last of `recent`.
    stalled_by: Option<StallCause>,
    /// The same since the last of `older`.
    older_stalled_by: Option<StallCause>,
}

impl Moments {
    /// Adds a moment that is later than the last one, unless it is very close to it.
    pub fn push(&mut self, at: Duration, moment: Moment) {
        let mut kept = Kept {
            at,
            moment,
            is_sample: false,
        };
        let is_close = |last: &Kept| at.saturating_sub(last.at) < CLOSEST;
        hand_on(&mut self.stalled_by, &mut kept);
        if self.recent.back().is_some_and(is_close) {
            self.stalled_by = kept.moment.stalled_by;
            return;
        }
        let is_due = |last| at.saturating_sub(last) >= SAMPLE_INTERVAL;
        if self.last_sample.is_none_or(is_due) {
            self.last_sample = Some(at);
            kept.is_sample = true;
        }
        push_tight(&mut self.recent, kept);
        let is_older = |kept: &mut Kept| at.saturating_sub(kept.at) > DETAILED;
        while let Some(mut kept) = self.recent.pop_front_if(is_older) {
            hand_on(&mut self.older_stalled_by, &mut kept);
            match kept.is_sample {
                true => push_tight(&mut self.older, kept),
                false => self.older_stalled_by = kept.moment.stalled_by,
            }
        }
        let is_over = |kept: &mut Kept| at.saturating_sub(kept.at) > SPAN;
        while self.older.pop_front_if(is_over).is_some() {}
    }

    fn all(&self) -> impl Iterator<Item = &Kept> {
        self.older.iter().chain(&self.recent)
    }

    /// Returns those between two monotonic times.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<Moment> {
        let within = self.all().filter(|kept| (from..=to).contains(&kept.at));
        within.map(|kept| kept.moment(since_1970)).collect()
    }

    /// Returns all of them, as the clock that tells the time since 1970 has it now.
    pub fn since_1970(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        self.all().map(move |kept| kept.moment(since_1970))
    }

    /// Returns ten a second.
    pub fn samples(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        let samples = self.all().filter(|kept| kept.is_sample);
        samples.map(move |kept| kept.moment(since_1970))
    }

    /// Forgets what was measured of expire cycles.
    pub fn forget_cycles(&mut self) {
        for kept in self.older.iter_mut().chain(&mut self.recent) {
            kept.moment.expiring_us = None;
        }
    }
}

/// Hands what clients were stalled by in moments that were left out on to the next one, whose counters tell for how long.
fn hand_on(stalled_by: &mut Option<StallCause>, kept: &mut Kept) {
    let left_out = stalled_by.take();
    kept.moment.stalled_by = kept.moment.stalled_by.or(left_out);
}

/// Adds a moment. Room grows by an eighth: doubled, as it is by default, half of it would be empty at last.
fn push_tight(moments: &mut VecDeque<Kept>, kept: Kept) {
    if moments.len() == moments.capacity() {
        moments.reserve_exact((moments.len() / 8).max(64));
    }
    moments.push_back(kept);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DETAILED, Moments, SPAN};
    use crate::{Moment, ServerState, Snapshot, StallCause};

    const SINCE_1970: Duration = Duration::from_secs(1_700_000_000);
    const STEP: Duration = Duration::from_millis(20);

    fn nothing() -> Moment {
        Moment::new(&Snapshot::default(), &ServerState::new(), None, true)
    }

    /// Follows a server that is read 50 times a second for a quarter of an hour.
    fn followed() -> (Moments, Duration) {
        let (mut moments, mut now) = (Moments::default(), Duration::ZERO);
        while now < SPAN + DETAILED {
            now += STEP;
            moments.push(now, nothing());
            // Read again at once.
            moments.push(now + STEP / 10, nothing());
        }
        (moments, now)
    }

    #[test]
    fn the_last_minutes_are_detailed_and_those_before_are_thinned() {
        let (moments, now) = followed();
        let between = |from, to| moments.between(from, to, SINCE_1970).len();
        let per_second = |seconds: u64| (seconds * 50) as usize;
        let detailed = between(now - DETAILED + STEP, now);
        assert_eq!(detailed, per_second(DETAILED.as_secs()));
        let before = between(Duration::ZERO, now - DETAILED);
        assert!(before.abs_diff(10 * 420) <= 1, "{before}");
        let times = moments.between(Duration::ZERO, now, SINCE_1970);
        assert!(times.is_sorted_by(|one, next| one.unix_us < next.unix_us));
        let last = times.last().map(Moment::unix_time);
        assert_eq!(last, Some(SINCE_1970 + now));
        // Ten a second throughout, and the same ones as they grow older.
        let samples: Vec<_> = moments.samples(SINCE_1970).collect();
        assert!(samples.len().abs_diff(6_000) <= 1);
        for moment in samples {
            assert_eq!(moment.unix_us % 100_000, 20_000);
        }
    }

    #[test]
    fn the_cause_of_a_stall_outlives_its_moment() {
        let (mut moments, mut now) = (Moments::default(), Duration::ZERO);
        while now < SPAN {
            now += STEP;
            let seconds = now.as_millis() / 1_000;
            // What is read at once after another reading is never kept.
            for (at, stalls) in [(now, false), (now + STEP / 10, true)] {
                let is_stalled = stalls && seconds.is_multiple_of(60);
                let moment = Moment {
                    stalled_by: is_stalled.then_some(StallCause::Commands),
                    ..nothing()
                };
                moments.push(at, moment);
            }
        }
        let mut stalled = vec![0; 11];
        for moment in moments.since_1970(SINCE_1970) {
            if moment.stalled_by.is_some() {
                let since = moment.unix_time() - SINCE_1970;
                stalled[since.as_secs() as usize / 60] += 1;
            }
        }
        // A second of each minute: at first ten moments of it are kept, later all.
        for (minute, stalled) in stalled.into_iter().enumerate() {
            match minute {
                0..7 => assert!((9..=11).contains(&stalled), "{minute}: {stalled}"),
                7..10 => assert!((49..=51).contains(&stalled), "{minute}: {stalled}"),
                _ => assert!(stalled <= 1, "{minute}: {stalled}"),
            }
        }
    }

    #[test]
    fn what_was_measured_of_expire_cycles_can_be_forgotten() {
        let (mut moments, now) = followed();
        moments.forget_cycles();
        for moment in moments.between(Duration::ZERO, now, SINCE_1970) {
            assert_eq!(moment.expiring_us, None);
        }
    }
}
