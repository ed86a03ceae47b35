//! When a server evicts, according to its own counter.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::redis::Redis;
use crate::wait::unix_time;

/// The pause between readings.
const PAUSE: Duration = Duration::from_millis(5);

/// The evictions in some time.
#[derive(Default)]
pub struct Evictions {
    /// The times of the two readings between which `evicted_keys` grew, in seconds since 1970, whenever it did.
    grown: Vec<(f64, f64)>,
}

impl Evictions {
    /// Watches a server for as long as `goes_on`.
    pub fn watch(redis: &Redis, goes_on: impl Fn() -> bool) -> Result<Self> {
        let mut seen = Self::default();
        let mut before = (unix_time()?, redis.info("evicted_keys")?);
        while goes_on() {
            thread::sleep(PAUSE);
            let asked = unix_time()?;
            let keys = redis.info("evicted_keys")?;
            if keys > before.1 {
                seen.grown.push((before.0, unix_time()?));
            }
            before = (asked, keys);
        }
        Ok(seen)
    }

    /// Returns the moments between which the first eviction was, if there was one.
    pub fn first(&self) -> Option<(f64, f64)> {
        self.grown.first().copied()
    }

    /// Returns the same for the last.
    pub fn last(&self) -> Option<(f64, f64)> {
        self.grown.last().copied()
    }

    /// Returns how many bursts these are, at least and at most, if one ends with this many seconds without an eviction.
    pub fn bursts(&self, quiet: f64) -> (usize, usize) {
        let pauses = self.grown.windows(2).filter_map(|pair| match pair {
            [(from, to), (next_from, next_to)] => Some((next_from - to, next_to - from)),
            _ => None,
        });
        let first = usize::from(!self.grown.is_empty());
        pauses.fold((first, first), |(least, most), (shortest, longest)| {
            (least + usize::from(shortest > quiet), most + usize::from(longest > quiet))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Evictions;

    #[test]
    fn only_what_is_certain_counts_as_one_or_two() {
        let bursts = |grown: &[(f64, f64)]| {
            let grown = grown.to_vec();
            Evictions { grown }.bursts(1.0)
        };
        assert_eq!(bursts(&[]), (0, 0));
        assert_eq!(bursts(&[(0.0, 0.1), (0.1, 0.9)]), (1, 1));
        assert_eq!(bursts(&[(0.0, 0.2), (0.2, 1.1)]), (1, 2));
        assert_eq!(bursts(&[(0.0, 0.2), (1.3, 1.4)]), (2, 2));
    }
}
