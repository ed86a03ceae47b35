//! How many of the keys that expire cycles sampled in the last minute had expired.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Moment;

/// How far back it looks.
const MINUTE: Duration = Duration::from_secs(60);
/// How finely the past is kept.
const GRAIN: Duration = Duration::from_secs(1);
/// Fewer keys give no share: a cycle samples 20 at a time.
const LEAST_SAMPLED: u64 = 100;

/// The last minute of a server's expire cycles.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpiredShare {
    /// For some moments, how many keys cycles had sampled by then, and how many of those had expired. The oldest is a
    /// minute old, or a little older.
    counted: VecDeque<(Duration, (u64, u64))>,
}

impl ExpiredShare {
    pub fn saw(&mut self, seen: &Moment) {
        let Some(keys) = seen.cycle_keys else {
            self.counted.clear();
            return;
        };
        if self.counted.back().is_some_and(|last: &(Duration, _)| seen.at.saturating_sub(last.0) < GRAIN) {
            return;
        }
        self.counted.push_back((seen.at, keys));
        let begin = seen.at.saturating_sub(MINUTE);
        while self.counted.get(1).is_some_and(|next| next.0 <= begin) {
            self.counted.pop_front();
        }
    }

    /// Returns the expired share of the keys sampled in the minute before `at`, to a second; `None` if they were too
    /// few.
    pub fn before(&self, at: Duration) -> Option<f64> {
        let last = self.counted.partition_point(|moment| moment.0 <= at);
        let (_, last) = self.counted.get(last.checked_sub(1)?)?;
        let begin = at.saturating_sub(MINUTE);
        let first = self.counted.partition_point(|moment| moment.0 < begin);
        let (_, first) = self.counted.get(first)?;
        let (sampled, expired) = (last.0.checked_sub(first.0)?, last.1.checked_sub(first.1)?);
        (sampled >= LEAST_SAMPLED).then(|| expired as f64 / sampled as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ExpiredShare;
    use crate::Moment;

    /// Goes on for some seconds, with this many keys sampled and expired in each.
    fn goes_on(share: &mut ExpiredShare, now: &mut Moment, seconds: u64, keys: [u64; 2]) {
        for tenth in 1..=10 * seconds {
            now.at += Duration::from_millis(100);
            if tenth % 10 == 0 {
                let (sampled, expired) = now.cycle_keys.unwrap_or_default();
                now.cycle_keys = Some((sampled + keys[0], expired + keys[1]));
            }
            share.saw(now);
        }
    }

    #[test]
    fn it_is_the_share_of_the_last_minute() {
        let (mut share, mut now) = (ExpiredShare::default(), Moment::default());
        assert_eq!(share.before(now.at), None);
        goes_on(&mut share, &mut now, 300, [1_000, 900]);
        goes_on(&mut share, &mut now, 65, [1_000, 100]);
        let of_now = share.before(now.at).unwrap_or_default();
        assert!((of_now - 0.1).abs() < 1e-9, "{of_now}");
        assert!(share.counted.len() <= 62, "{}", share.counted.len());
        goes_on(&mut share, &mut now, 30, [1_000, 900]);
        let mixed = share.before(now.at).unwrap_or_default();
        assert!((0.47..0.53).contains(&mixed), "{mixed}");
        // What came after does not count.
        let before = now.at - Duration::from_secs(30);
        let earlier = share.before(before).unwrap_or_default();
        assert!((0.09..0.13).contains(&earlier), "{earlier}");
    }

    #[test]
    fn few_keys_and_what_is_not_known_give_no_share() {
        let (mut share, mut now) = (ExpiredShare::default(), Moment::default());
        goes_on(&mut share, &mut now, 120, [1, 1]);
        assert_eq!(share.before(now.at), None);
        goes_on(&mut share, &mut now, 10, [20, 5]);
        assert!(share.before(now.at).is_some());
        now.cycle_keys = None;
        share.saw(&now);
        assert_eq!(share.before(now.at), None);
    }
}
