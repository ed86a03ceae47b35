//! The moments of a server's last ten minutes, in bounded memory.

mod series;

use std::time::Duration;

use series::{Kept, Series};

use crate::units::{microseconds, nanoseconds};
use crate::{Moment, StallCause};

/// For how long moments are kept.
const SPAN: Duration = Duration::from_secs(600);
/// For how long all of them are kept; after that, ten a second. Both are kept a little longer, because a series drops
/// whole blocks.
const DETAILED: Duration = Duration::from_secs(180);
/// Moments closer together are left out: a server that is being sampled is read at odd times too.
const CLOSEST: Duration = Duration::from_millis(10);
/// The least time between two samples: ten a second, with some tolerance for readings that come early.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(90);

/// The moments of the last ten minutes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Samples only.
    older: Series,
    recent: Series,
    last: Option<Duration>,
    last_sample: Option<Duration>,
    /// The stall cause in moments left out since the last of `recent`.
    stalled_by: Option<StallCause>,
    /// The same since the last of `older`.
    older_stalled_by: Option<StallCause>,
}

impl Moments {
    /// Adds a moment that is later than the last one, unless it is very close to it.
    pub fn push(&mut self, at: Duration, moment: Moment) {
        let mut kept = Kept { at_ns: nanoseconds(at), moment, is_sample: false };
        hand_on(&mut self.stalled_by, &mut kept);
        let is_close = |last| at.saturating_sub(last) < CLOSEST;
        if self.last.is_some_and(is_close) {
            self.stalled_by = kept.moment.stalled_by;
            return;
        }
        self.last = Some(at);
        let is_due = |last| at.saturating_sub(last) >= SAMPLE_INTERVAL;
        if self.last_sample.is_none_or(is_due) {
            self.last_sample = Some(at);
            kept.is_sample = true;
        }
        self.recent.push(kept);
        for mut kept in (self.recent.pop_before(at.saturating_sub(DETAILED))).unwrap_or_default() {
            hand_on(&mut self.older_stalled_by, &mut kept);
            match kept.is_sample {
                true => self.older.push(kept),
                false => self.older_stalled_by = kept.moment.stalled_by,
            }
        }
        self.older.pop_before(at.saturating_sub(SPAN));
    }

    fn around(&self, from: Duration, to: Duration) -> impl Iterator<Item = Kept> + '_ {
        let older = self.older.around(from, to);
        older.chain(self.recent.around(from, to))
    }

    /// Returns the moments between two monotonic times. `since_1970` dates them.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<Moment> {
        let around = self.around(from, to);
        let within = around.filter(|kept| (from..=to).contains(&kept.at()));
        within.map(|kept| dated(kept, since_1970)).collect()
    }

    /// Returns all moments.
    pub fn all(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        let all = self.around(Duration::ZERO, Duration::MAX);
        all.map(move |kept| dated(kept, since_1970))
    }

    /// Returns ten moments a second.
    pub fn samples(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        let samples = self.around(Duration::ZERO, Duration::MAX);
        let samples = samples.filter(|kept| kept.is_sample);
        samples.map(move |kept| dated(kept, since_1970))
    }

    /// Forgets the measurements of expire cycles.
    pub fn forget_cycles(&mut self) {
        for series in [&mut self.older, &mut self.recent] {
            series.change(|moment| moment.expiring_us = None);
        }
    }
}

/// Returns the moment with its time since 1970.
fn dated(kept: Kept, since_1970: Duration) -> Moment {
    Moment { unix_us: microseconds(since_1970.saturating_add(kept.at())), ..kept.moment }
}

/// Hands the stall cause of moments that were left out to the next one, whose counters tell for how long.
fn hand_on(stalled_by: &mut Option<StallCause>, kept: &mut Kept) {
    let left_out = stalled_by.take();
    kept.moment.stalled_by = kept.moment.stalled_by.or(left_out);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::series::BLOCK;
    use super::{DETAILED, Moments, SPAN};
    use crate::{Moment, ServerState, Snapshot, StallCause};

    const SINCE_1970: Duration = Duration::from_secs(1_700_000_000);
    const STEP: Duration = Duration::from_millis(20);

    fn nothing() -> Moment {
        Moment::new(&Snapshot::default(), &ServerState::new(), None, true)
    }

    /// Follows a server that is read 50 times a second for 13 minutes.
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
        assert!((4_200..=4_200 + BLOCK).contains(&before), "{before}");
        let times = moments.between(Duration::ZERO, now, SINCE_1970);
        assert!(times.is_sorted_by(|one, next| one.unix_us < next.unix_us));
        let last = times.last().map(Moment::unix_time);
        assert_eq!(last, Some(SINCE_1970 + now));
        // Ten a second throughout, and the same ones as they grow older.
        let samples: Vec<_> = moments.samples(SINCE_1970).collect();
        let count = samples.len();
        assert!((6_000..=6_000 + BLOCK).contains(&count), "{count}");
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
            // A reading right after another is never kept.
            for (at, stalls) in [(now, false), (now + STEP / 10, true)] {
                let is_stalled = stalls && seconds.is_multiple_of(60);
                let moment = Moment { stalled_by: is_stalled.then_some(StallCause::Commands), ..nothing() };
                moments.push(at, moment);
            }
        }
        let mut stalled = vec![0; 11];
        for moment in moments.all(SINCE_1970) {
            if moment.stalled_by.is_some() {
                let since = moment.unix_time() - SINCE_1970;
                stalled[since.as_secs() as usize / 60] += 1;
            }
        }
        // Clients are stalled for one second of each minute: ten of its moments are kept at first, later all.
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
