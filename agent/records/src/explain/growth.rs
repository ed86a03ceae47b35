//! A part of memory that grew.

use evictscope_telemetry::Moment;

use super::trend;
use super::window::Window;

/// How it grew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// What it was in the calm before: the median, bytes.
    pub from: u64,
    /// What it exceeded in only a tenth of the calm, bytes.
    pub usual: u64,
    /// Just before evictions began, bytes.
    pub at_start: u64,
    /// The highest until the reclaim was over, bytes.
    pub to: u64,
    /// Whether it rose clearly in the calm before.
    pub rose_before: bool,
}

impl Growth {
    /// Returns by how much it grew, bytes.
    pub fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// Returns whether it reached what is clearly unusual: at least half of the growth is above what it rarely exceeded
    /// in the calm. Buffers that swell and shrink all the time do not.
    pub fn is_unusual(&self) -> bool {
        self.to.saturating_sub(self.usual) >= self.bytes().div_ceil(2)
    }

    /// Returns whether it grew for more than a moment: it is unusual, or rose before as well. A replica that is behind
    /// fills memory long before evictions begin.
    pub fn is_lasting(&self) -> bool {
        self.is_unusual() || self.rose_before
    }
}

/// Returns how a part grew since the calm. The server counts client buffers late, so the peak is looked for until some
/// time after the reclaim.
pub fn growth(window: &Window<'_>, part: fn(&Moment) -> Option<u64>) -> Option<Growth> {
    // What only evicting calls show is not known before the first of them.
    let before = window.calm.last().into_iter().chain(window.inside);
    let at_start = before.filter_map(part).next()?;
    let to = window.whole.iter().filter_map(part).max()?;
    let values: Vec<_> = (window.calm.iter())
        .filter_map(|moment| Some((window.seconds_since_calm(moment), part(moment)? as f64)))
        .collect();
    let mut sizes: Vec<_> = window.calm.iter().filter_map(part).collect();
    sizes.sort_unstable();
    let exceeded_in = |share: usize| sizes.get(sizes.len() - sizes.len().div_ceil(share));
    Some(Growth {
        from: *exceeded_in(2).unwrap_or(&at_start),
        usual: *exceeded_in(10).unwrap_or(&at_start),
        at_start,
        to,
        rose_before: trend::rise(&values).is_some_and(|rise| rise > 0.0),
    })
}

/// Returns how a part grew since it was lowest in the calm before.
pub fn growth_since_lowest(window: &Window<'_>, part: fn(&Moment) -> Option<u64>) -> Option<Growth> {
    let growth = growth(window, part)?;
    let lowest = window.calm.iter().filter_map(part).min();
    Some(Growth { from: lowest.unwrap_or(growth.from), ..growth })
}
