//! A series of moments that takes little memory: all but the last are packed in blocks.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};

use crate::Moment;

/// How many moments are packed at once.
pub(super) const BLOCK: usize = 128;

/// A moment, and what only its timeline needs to know about it.
#[derive(Clone, Copy, Debug, BorshSerialize, BorshDeserialize)]
pub(super) struct Kept {
    /// Monotonic time, nanoseconds.
    pub at_ns: u64,
    pub moment: Moment,
    pub is_sample: bool,
}

impl Kept {
    /// Returns its monotonic time.
    pub fn at(&self) -> Duration {
        Duration::from_nanos(self.at_ns)
    }
}

/// Moments, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    blocks: VecDeque<Block>,
    /// Moments that are not packed yet.
    last: Vec<Kept>,
}

#[derive(Clone, Debug)]
struct Block {
    /// The monotonic times of its first and last moments.
    span: (Duration, Duration),
    /// The moments, encoded by borsh and deflated.
    packed: Box<[u8]>,
}

impl Block {
    fn pack(kept: &[Kept]) -> io::Result<Self> {
        let bytes = borsh::to_vec(kept)?;
        let mut packed = Vec::new();
        DeflateEncoder::new(&bytes[..], Compression::fast()).read_to_end(&mut packed)?;
        let time = |kept: Option<&Kept>| kept.map(Kept::at).unwrap_or_default();
        Ok(Self { span: (time(kept.first()), time(kept.last())), packed: packed.into() })
    }

    fn unpack(&self) -> io::Result<Vec<Kept>> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&*self.packed).read_to_end(&mut bytes)?;
        borsh::from_slice(&bytes)
    }
}

impl Series {
    /// Adds a moment that is later than all others.
    pub fn push(&mut self, kept: Kept) {
        self.last.push(kept);
        if self.last.len() >= BLOCK {
            // Fails only if memory runs out.
            self.blocks.extend(Block::pack(&self.last));
            self.last.clear();
        }
    }

    /// Removes and returns the oldest block if all of it is before `before`.
    pub fn pop_before(&mut self, before: Duration) -> Option<Vec<Kept>> {
        let is_over = |block: &mut Block| block.span.1 < before;
        self.blocks.pop_front_if(is_over)?.unpack().ok()
    }

    /// Returns the moments between two monotonic times, and the rest of their blocks.
    pub fn around(&self, from: Duration, to: Duration) -> impl Iterator<Item = Kept> + '_ {
        let is_near = move |block: &&Block| block.span.0 <= to && block.span.1 >= from;
        let blocks = self.blocks.iter().filter(is_near);
        let packed = blocks.flat_map(|block| block.unpack().unwrap_or_default());
        packed.chain(self.last.iter().copied())
    }

    /// Changes all moments.
    pub fn change(&mut self, change: impl Fn(&mut Moment)) {
        let all: Vec<_> = self.around(Duration::ZERO, Duration::MAX).collect();
        *self = Self::default();
        for mut kept in all {
            change(&mut kept.moment);
            self.push(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BLOCK, Block, Kept};
    use crate::{ClientBuffers, Moment, Phase, ServerState, Snapshot, StallCause};

    proptest! {
        #[test]
        fn what_is_packed_comes_back(values: Vec<(u64, Option<u64>, Option<f64>, bool)>) {
            let nothing = Moment::new(&Snapshot::default(), &ServerState::new(), None, true);
            let kept: Vec<_> = values
                .into_iter()
                .map(|(at_ns, value, stale_ratio, is_sample)| {
                    let moment = Moment {
                        phase: is_sample.then_some(Phase::Reclaim),
                        stalled_by: is_sample.then_some(StallCause::Cpu),
                        used_memory: value,
                        evicting_us: at_ns,
                        client_buffers: value.map(|normal| ClientBuffers {
                            normal,
                            replica: 1,
                            pubsub: at_ns,
                            primary: 0,
                        }),
                        stale_ratio: stale_ratio.filter(|ratio| !ratio.is_nan()),
                        child_us: value,
                        ..nothing
                    };
                    Kept { at_ns, moment, is_sample }
                })
                .collect();
            let back = Block::pack(&kept).and_then(|block| block.unpack());
            let back = back.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(format!("{back:?}"), format!("{kept:?}"));
        }
    }

    #[test]
    fn moments_of_a_server_that_does_little_take_little() {
        let nothing = Moment::new(&Snapshot::default(), &ServerState::new(), None, true);
        let kept = (0..BLOCK as u64).map(|tenth| Kept {
            at_ns: 100_003_017 * tenth,
            moment: Moment {
                unix_us: 1_700_000_000_000_000 + 100_003 * tenth,
                used_memory: Some(1_000_000 + 16 * (tenth % 3)),
                commands: Some(tenth / 10),
                cpu_us: Some(80 * tenth),
                ..nothing
            },
            is_sample: true,
        });
        let block = Block::pack(&kept.collect::<Vec<_>>());
        let packed = block.map(|block| block.packed.len()).unwrap_or(usize::MAX);
        assert!(packed < 40 * BLOCK, "{packed}");
    }
}
