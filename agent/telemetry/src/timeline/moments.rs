//! The moments of a server's last ten minutes, in bounded memory: all but the last are packed in blocks.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::time::Duration;

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};

use crate::{Moment, StallCause, microseconds};

/// For how long moments are kept.
const SPAN: Duration = Duration::from_secs(600);
/// For how long all of them are kept; after that, ten a second. Both are kept a little longer, because a series drops
/// whole blocks.
const DETAILED: Duration = Duration::from_secs(180);
/// Moments closer together are left out: a server that is being sampled is read at odd times too.
const CLOSEST: Duration = Duration::from_millis(10);
/// The least time between two samples: ten a second, with some tolerance for readings that come early.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(90);
/// How many moments are packed at once.
const BLOCK: usize = 128;

/// The moments of the last ten minutes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Samples only.
    older: Series,
    recent: Series,
    last: Option<Duration>,
    /// When the last of `older` was read.
    last_older: Option<Duration>,
    /// The stall cause in moments left out since the last of `recent`.
    stalled_by: Option<StallCause>,
    /// The same since the last of `older`.
    older_stalled_by: Option<StallCause>,
}

impl Moments {
    /// Adds a moment that is later than the last one, unless it is very close to it.
    pub fn push(&mut self, mut moment: Moment) {
        let at = moment.at;
        hand_on(&mut self.stalled_by, &mut moment);
        if self.last.is_some_and(|last| at.saturating_sub(last) < CLOSEST) {
            self.stalled_by = moment.stalled_by;
            return;
        }
        self.last = Some(at);
        self.recent.push(moment);
        for mut moment in self.recent.pop_before(at.saturating_sub(DETAILED)).unwrap_or_default() {
            hand_on(&mut self.older_stalled_by, &mut moment);
            if is_sample(&mut self.last_older, &moment) {
                self.older.push(moment);
            } else {
                self.older_stalled_by = moment.stalled_by;
            }
        }
        self.older.pop_before(at.saturating_sub(SPAN));
    }

    fn around(&self, from: Duration, to: Duration) -> impl Iterator<Item = Moment> + '_ {
        self.older.around(from, to).chain(self.recent.around(from, to))
    }

    /// Returns the moments between two monotonic times. `since_1970` dates them.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<Moment> {
        let within = self.around(from, to).filter(|moment| (from..=to).contains(&moment.at));
        within.map(|moment| dated(moment, since_1970)).collect()
    }

    pub fn all(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        self.around(Duration::ZERO, Duration::MAX).map(move |moment| dated(moment, since_1970))
    }

    /// Returns ten moments a second: the same ones as they grow older.
    pub fn samples(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        let mut last = None;
        self.all(since_1970).filter(move |moment| is_sample(&mut last, moment))
    }

    pub fn forget_cycles(&mut self) {
        for series in [&mut self.older, &mut self.recent] {
            series.change(|moment| moment.expiring = None);
        }
    }
}

fn is_sample(last: &mut Option<Duration>, moment: &Moment) -> bool {
    let is_due = last.is_none_or(|last| moment.at.saturating_sub(last) >= SAMPLE_INTERVAL);
    if is_due {
        *last = Some(moment.at);
    }
    is_due
}

/// Returns the moment with its time since 1970, to the microsecond.
fn dated(moment: Moment, since_1970: Duration) -> Moment {
    let at = since_1970.saturating_add(moment.at);
    Moment { at: Duration::from_micros(microseconds(at)), ..moment }
}

/// Hands the stall cause of moments that were left out to the next one, whose counters tell for how long.
fn hand_on(stalled_by: &mut Option<StallCause>, moment: &mut Moment) {
    moment.stalled_by = moment.stalled_by.or(stalled_by.take());
}

/// Moments, the oldest first.
#[derive(Clone, Debug, Default)]
struct Series {
    blocks: VecDeque<Block>,
    /// Moments that are not packed yet.
    last: Vec<Moment>,
}

#[derive(Clone, Debug)]
struct Block {
    /// The monotonic times of its first and last moments.
    span: (Duration, Duration),
    /// Encoded by borsh and deflated.
    packed: Box<[u8]>,
}

impl Block {
    fn pack(moments: &[Moment]) -> io::Result<Self> {
        let bytes = borsh::to_vec(moments)?;
        let mut packed = Vec::new();
        DeflateEncoder::new(&bytes[..], Compression::fast()).read_to_end(&mut packed)?;
        let time = |moment: Option<&Moment>| moment.map(|moment| moment.at).unwrap_or_default();
        Ok(Self { span: (time(moments.first()), time(moments.last())), packed: packed.into() })
    }

    fn unpack(&self) -> io::Result<Vec<Moment>> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&*self.packed).read_to_end(&mut bytes)?;
        borsh::from_slice(&bytes)
    }
}

impl Series {
    /// Adds a moment that is later than all others.
    fn push(&mut self, moment: Moment) {
        self.last.push(moment);
        if self.last.len() >= BLOCK {
            // Fails only if memory runs out.
            self.blocks.extend(Block::pack(&self.last));
            self.last.clear();
        }
    }

    /// Removes and returns the oldest block if all of it is before `before`.
    fn pop_before(&mut self, before: Duration) -> Option<Vec<Moment>> {
        let is_over = |block: &mut Block| block.span.1 < before;
        self.blocks.pop_front_if(is_over)?.unpack().ok()
    }

    /// Returns the moments between two monotonic times, and the rest of their blocks.
    fn around(&self, from: Duration, to: Duration) -> impl Iterator<Item = Moment> + '_ {
        let is_near = move |block: &&Block| block.span.0 <= to && block.span.1 >= from;
        let packed = self.blocks.iter().filter(is_near).flat_map(|block| block.unpack().unwrap_or_default());
        packed.chain(self.last.iter().copied())
    }

    fn change(&mut self, change: impl Fn(&mut Moment)) {
        let all: Vec<_> = self.around(Duration::ZERO, Duration::MAX).collect();
        *self = Self::default();
        for mut moment in all {
            change(&mut moment);
            self.push(moment);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{BLOCK, Block, DETAILED, Moments, SPAN};
    use crate::{ClientBuffers, Moment, Phase, StallCause};

    const SINCE_1970: Duration = Duration::from_secs(1_700_000_000);
    const STEP: Duration = Duration::from_millis(20);

    fn nothing(at: Duration) -> Moment {
        Moment { at, expiring: Some(at), ..Moment::default() }
    }

    /// Follows a server that is read 50 times a second for 13 minutes.
    fn followed() -> (Moments, Duration) {
        let (mut moments, mut now) = (Moments::default(), Duration::ZERO);
        while now < SPAN + DETAILED {
            now += STEP;
            moments.push(nothing(now));
            // Read again at once.
            moments.push(nothing(now + STEP / 10));
        }
        (moments, now)
    }

    #[test]
    fn the_last_minutes_are_detailed_and_those_before_are_thinned() {
        let (moments, now) = followed();
        let between = |from, to| moments.between(from, to, SINCE_1970).len();
        let per_second = |seconds: u64| (seconds * 50) as usize;
        assert_eq!(between(now - DETAILED + STEP, now), per_second(DETAILED.as_secs()));
        let before = between(Duration::ZERO, now - DETAILED);
        assert!((4_200..=4_200 + BLOCK).contains(&before), "{before}");
        let times = moments.between(Duration::ZERO, now, SINCE_1970);
        assert!(times.is_sorted_by(|moment, next| moment.at < next.at));
        assert_eq!(times.last().map(|moment| moment.at), Some(SINCE_1970 + now));
        // Ten a second throughout, and the same ones as they grow older.
        let samples: Vec<_> = moments.samples(SINCE_1970).collect();
        let count = samples.len();
        assert!((6_000..=6_000 + BLOCK).contains(&count), "{count}");
        for moment in samples {
            assert_eq!(moment.unix_us() % 100_000, 20_000);
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
                moments.push(Moment { stalled_by: is_stalled.then_some(StallCause::Commands), ..nothing(at) });
            }
        }
        let mut stalled = vec![0; 11];
        for moment in moments.all(SINCE_1970) {
            if moment.stalled_by.is_some() {
                let since = moment.at - SINCE_1970;
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
            assert_eq!(moment.expiring, None);
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(values: Vec<(u32, Option<u32>, Option<f64>, bool)>) {
            let moments: Vec<_> = values
                .into_iter()
                .map(|(number, value, stale_ratio, is_stalled)| Moment {
                    at: Duration::from_nanos(number.into()),
                    phase: is_stalled.then_some(Phase::Reclaim),
                    stalled_by: is_stalled.then_some(StallCause::Cpu),
                    used_memory: value.map(u64::from),
                    evicting: Duration::from_micros(number.into()),
                    client_buffers: value.map(|normal| ClientBuffers {
                        normal: normal.into(),
                        replica: 1,
                        pubsub: u64::MAX,
                        primary: 0,
                    }),
                    stale_ratio: stale_ratio.filter(|ratio| !ratio.is_nan()),
                    child: value.map(|us| Duration::from_micros(us.into())),
                    ..Moment::default()
                })
                .collect();
            let back = Block::pack(&moments).and_then(|block| block.unpack());
            prop_assert_eq!(back.map_err(|error| TestCaseError::fail(error.to_string()))?, moments);
        }
    }

    #[test]
    fn moments_of_a_server_that_does_little_take_little() {
        let moments = (0..BLOCK as u64).map(|tenth| Moment {
            at: Duration::from_nanos(100_003_017 * tenth),
            used_memory: Some(1_000_000 + 16 * (tenth % 3)),
            commands: Some(tenth / 10),
            cpu: Some(Duration::from_micros(80 * tenth)),
            ..nothing(Duration::ZERO)
        });
        let block = Block::pack(&moments.collect::<Vec<_>>());
        let packed = block.map(|block| block.packed.len()).unwrap_or(usize::MAX);
        assert!(packed < 40 * BLOCK, "{packed}");
    }
}
