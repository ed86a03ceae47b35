//! The last ten minutes of a server at 20 ms resolution.

use std::collections::VecDeque;
use std::time::Duration;

use evictscope_abi::{Activity, BIN_NS, BINS, BinRing};

/// How many bins are kept: ten minutes. With the samples that is 0.8 MB for each server.
const KEPT: usize = 30_000;
/// Least time between two samples of memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What happened in 20 ms, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBin {
    /// Wall time in evicting calls.
    pub evicting: u32,
    /// CPU time of the main thread in evicting calls.
    pub cpu_eviction: u32,
    /// CPU time of the main thread elsewhere.
    pub cpu_other: u32,
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    /// Monotonic time.
    pub at: Duration,
    /// Memory tracked by the allocator, bytes.
    pub used_memory: Option<u64>,
    /// All client buffers, bytes.
    pub client_buffers: Option<u64>,
}

/// The last ten minutes of a server.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Index of the first bin.
    first: u64,
    /// `None` where the bin was not read before the kernel counted the next round in its place.
    bins: VecDeque<Option<TimeBin>>,
    samples: VecDeque<MemorySample>,
    /// What to add to a monotonic time to get the time since 1970.
    since_1970: Duration,
}

impl Timeline {
    /// Begins with a server that was found at `at`, monotonic.
    pub fn new(at: Duration) -> Self {
        Self {
            first: index(at),
            bins: VecDeque::new(),
            samples: VecDeque::new(),
            since_1970: Duration::ZERO,
        }
    }

    /// Takes in the kernel's bins as they were at `at`; `unix_time` is the same moment since 1970. Call
    /// it more often than the kernel's ring goes round (10 s).
    pub fn take_in(
        &mut self,
        at: Duration,
        unix_time: Duration,
        evicting: &BinRing,
        cpu: &[BinRing; 2],
    ) {
        self.since_1970 = unix_time.saturating_sub(at);
        // The bin of this moment is not full yet.
        let end = index(at);
        // Older ones than this have been overwritten; one more may be while the ring is copied.
        let in_ring = end.saturating_sub(BINS as u64 - 1);
        if end.saturating_sub(self.end()) > KEPT as u64 {
            self.bins.clear();
            self.first = end - KEPT as u64;
        }
        while self.end() < end {
            let bin = (self.end() >= in_ring).then(TimeBin::default);
            self.bins.push_back(bin);
        }
        while self.bins.len() > KEPT {
            self.bins.pop_front();
            self.first += 1;
        }
        let cpu = |activity| &cpu[activity as usize];
        self.set(evicting, |bin| &mut bin.evicting);
        self.set(cpu(Activity::Eviction), |bin| &mut bin.cpu_eviction);
        self.set(cpu(Activity::Other), |bin| &mut bin.cpu_other);
    }

    fn set(&mut self, ring: &BinRing, part: fn(&mut TimeBin) -> &mut u32) {
        let mut put = |index: Option<u64>, ns: u64| {
            let offset = index.and_then(|index| index.checked_sub(self.first));
            let offset = offset.and_then(|offset| usize::try_from(offset).ok());
            if let Some(Some(bin)) = offset.and_then(|offset| self.bins.get_mut(offset)) {
                // CPU time is counted a sampling period late, and so can exceed the bin's length.
                *part(bin) = u32::try_from(ns.min(BIN_NS)).unwrap_or(u32::MAX);
            }
        };
        for counted in &ring.bins {
            put(Some(counted.index), counted.ns);
            for before in 1..=counted.full_before.min(KEPT as u64) {
                put(counted.index.checked_sub(before), BIN_NS);
            }
        }
    }

    /// Takes in a sample of memory, unless it comes too soon after the last.
    pub fn sample(&mut self, at: Duration, used_memory: Option<u64>, client_buffers: Option<u64>) {
        let is_due = |last: &MemorySample| at.saturating_sub(last.at) >= SAMPLE_INTERVAL * 9 / 10;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back(MemorySample {
                at,
                used_memory,
                client_buffers,
            });
        }
        let oldest = at.saturating_sub(Duration::from_nanos(BIN_NS * KEPT as u64));
        let expired = self.samples.partition_point(|sample| sample.at < oldest);
        self.samples.drain(..expired);
    }

    fn end(&self) -> u64 {
        self.first + self.bins.len() as u64
    }

    /// Returns when the first bin begins, since 1970.
    pub fn start(&self) -> Duration {
        self.since_1970 + Duration::from_nanos(self.first * BIN_NS)
    }

    /// Returns the bins from [`Self::start`] on without a gap; `None` where one is not known.
    pub fn bins(&self) -> impl Iterator<Item = Option<TimeBin>> + '_ {
        self.bins.iter().copied()
    }

    /// Returns the samples of memory, the oldest first, with their times since 1970.
    pub fn samples(&self) -> impl Iterator<Item = (Duration, MemorySample)> + '_ {
        let samples = self.samples.iter().copied();
        samples.map(|sample| (self.since_1970 + sample.at, sample))
    }
}

fn index(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX) / BIN_NS
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_abi::{BIN_NS, BinRing};

    use super::{KEPT, TimeBin, Timeline};

    const UNIX: Duration = Duration::from_secs(1_700_000_000);

    fn bin(index: u64) -> Duration {
        Duration::from_nanos(index * BIN_NS)
    }

    #[test]
    fn each_bin_has_what_the_kernel_counted_in_it() {
        let mut timeline = Timeline::new(bin(100));
        let (mut evicting, mut cpu) = (BinRing::ZERO, [BinRing::ZERO; 2]);
        evicting.spread(101 * BIN_NS + 5, 102 * BIN_NS + 5);
        cpu[0].add(101 * BIN_NS, 7);
        cpu[1].add(102 * BIN_NS, 2 * BIN_NS);
        timeline.take_in(bin(103), UNIX + bin(103), &evicting, &cpu);
        // The same again, and more.
        evicting.spread(102 * BIN_NS + 5, 102 * BIN_NS + 9);
        timeline.take_in(bin(104), UNIX + bin(104), &evicting, &cpu);
        let full = BIN_NS as u32;
        let expected = [(0, 0, 0), (full - 5, 7, 0), (9, 0, full), (0, 0, 0)].map(Some);
        let parts = |bin: TimeBin| (bin.evicting, bin.cpu_eviction, bin.cpu_other);
        let found: Vec<_> = timeline.bins().map(|bin| bin.map(parts)).collect();
        assert_eq!(found, expected);
        assert_eq!(timeline.start(), UNIX + bin(100));
    }

    #[test]
    fn what_was_not_read_in_time_is_not_known() {
        let mut timeline = Timeline::new(bin(0));
        let empty = [BinRing::ZERO; 2];
        timeline.take_in(bin(10), UNIX, &empty[0], &empty);
        timeline.take_in(bin(1_010), UNIX, &empty[0], &empty);
        let unknown = timeline.bins().filter(Option::is_none).count();
        assert_eq!(unknown, 1_000 - 511);
    }

    #[test]
    fn it_stays_bounded() {
        let mut timeline = Timeline::new(bin(0));
        let empty = [BinRing::ZERO; 2];
        for second in 0..700_u64 {
            let at = Duration::from_secs(second);
            timeline.take_in(at, UNIX + at, &empty[0], &empty);
            for tenth in 0..20 {
                timeline.sample(at + Duration::from_millis(50 * tenth), Some(1), None);
            }
        }
        assert_eq!(timeline.bins().count(), KEPT);
        assert_eq!(timeline.start(), UNIX + Duration::from_secs(99));
        assert!(timeline.samples().count() <= 6_010);
        timeline.take_in(Duration::MAX, UNIX, &empty[0], &empty);
        assert_eq!(timeline.bins().count(), KEPT);
    }
}
