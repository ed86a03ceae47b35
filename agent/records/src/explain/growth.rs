//! A part of memory that grew, and a straight line through values that scatter.

use evictscope_telemetry::{MemoryPart, MemoryParts, Moment};

use super::cause_kind::CauseKind;
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
pub fn growth(window: &Window<'_>, part: impl Fn(&Moment) -> Option<u64>) -> Option<Growth> {
    // What only evicting calls show is not known before the first of them.
    let at_start = window.calm.last().into_iter().chain(window.inside).find_map(&part)?;
    let to = window.whole.iter().filter_map(&part).max()?;
    let values: Vec<_> = (window.calm.iter())
        .filter_map(|moment| Some((window.seconds_since_calm(moment), part(moment)? as f64)))
        .collect();
    let exceeded_in = |sizes: &[u64], share: usize| {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.get(sizes.len() - sizes.len().div_ceil(share)).copied().unwrap_or(at_start)
    };
    let sizes: Vec<_> = window.calm.iter().filter_map(&part).collect();
    let from = exceeded_in(&sizes, 2);
    // What rose and stayed high until evictions began was not usual before.
    let low = sizes.iter().rposition(|size| *size <= from.midpoint(to)).map_or(0, |last| last + 1);
    Some(Growth {
        from,
        usual: exceeded_in(sizes.get(..low).unwrap_or_default(), 10),
        at_start,
        to,
        rose_before: rise(&values).is_some_and(|rise| rise > 0.0),
    })
}

/// Returns how a part grew since it was lowest in the calm before.
pub fn growth_since_lowest(window: &Window<'_>, part: impl Fn(&Moment) -> Option<u64>) -> Option<Growth> {
    let growth = growth(window, &part)?;
    let lowest = window.calm.iter().filter_map(part).min();
    Some(Growth { from: lowest.unwrap_or(growth.from), ..growth })
}

type Part = fn(&MemoryParts) -> Option<u64>;
/// The parts of memory that are neither keys nor buffers of clients and replicas.
const OTHERS: [(CauseKind, Part); 3] = [
    (CauseKind::Scripts, |parts| parts.get(MemoryPart::Scripts)),
    (CauseKind::ClusterLinks, |parts| parts.get(MemoryPart::ClusterLinks)),
    (CauseKind::TrackingTable, MemoryParts::tracking_table),
];

/// Returns what all of these take, bytes; `None` if no parts were read at this moment.
pub fn bytes_of_parts(moment: &Moment) -> Option<u64> {
    let parts = moment.memory?;
    Some(OTHERS.iter().filter_map(|(_, bytes)| bytes(&parts)).fold(0, u64::saturating_add))
}

/// Returns how each of them grew for more than a moment since the calm, if it did.
pub fn grown_parts(window: &Window<'_>) -> Vec<(CauseKind, Growth)> {
    let grown = OTHERS.iter().filter_map(|(kind, bytes)| {
        let growth = growth_since_lowest(window, |moment: &Moment| bytes(&moment.memory?))?;
        (growth.is_lasting() && growth.bytes() > 0).then_some((*kind, growth))
    });
    grown.collect()
}

/// A rise counts if it is this many times the scatter around the line: ten or more values in random order rise by as
/// much in less than one of ten thousand cases.
const CLEAR: f64 = 4.0;
/// Fewer values have no trend.
const LEAST_VALUES: usize = 10;

/// Returns by how much values clearly rise per second; 0 if they do not, `None` if they are too few. Each value follows
/// its time in seconds.
pub fn rise(values: &[(f64, f64)]) -> Option<f64> {
    let length = values.last()?.0 - values.first()?.0;
    if values.len() < LEAST_VALUES || length <= 0.0 {
        return None;
    }
    let count = values.len() as f64;
    let (mut time, mut value) = (0.0, 0.0);
    for (at, one) in values {
        time += at / count;
        value += one / count;
    }
    let (mut spread, mut common) = (0.0, 0.0);
    for (at, one) in values {
        spread += (at - time).powi(2);
        common += (at - time) * (one - value);
    }
    let slope = common / spread;
    let off = |(at, one): &(f64, f64)| (one - value - slope * (at - time)).powi(2);
    let scatter = (values.iter().map(off).sum::<f64>() / (count - 2.0)).sqrt();
    let is_clear = slope > 0.0 && slope * length >= CLEAR * scatter;
    Some(if is_clear { slope } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::rise;

    fn of(value: fn(u32) -> f64) -> Option<f64> {
        rise(&Vec::from_iter((0..100).map(|at| (f64::from(at), value(at)))))
    }

    #[test]
    fn only_a_clear_rise_is_found() {
        assert!((of(|at| 7.0 + 3.0 * f64::from(at)).unwrap_or_default() - 3.0).abs() < 1e-9);
        assert_eq!(of(|at| -7.0 - 3.0 * f64::from(at)), Some(0.0));
        assert_eq!(of(|_| 7.0), Some(0.0));
        // It scatters.
        assert_eq!(of(|at| f64::from(at.wrapping_mul(2_654_435_761) >> 20)), Some(0.0));
    }

    #[test]
    fn few_values_have_no_trend() {
        assert_eq!(rise(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(rise(&[(1.0, 1.0); 50]), None);
        assert_eq!(rise(&[]), None);
    }
}
