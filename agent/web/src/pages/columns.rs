//! Thins moments out to the columns of a drawing.

use evictscope_telemetry::{ClientBuffers, Moment, Phase};

/// Between two moments that are further apart, what happened when is not known.
pub const LONGEST_INTERVAL_US: u64 = 3_000_000;

/// The time that a drawing shows, since 1970, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from_us: u64,
    /// Its end, which is later.
    pub to_us: u64,
}

impl Span {
    /// Returns the time from one moment to another; a second of it at least.
    pub fn new(from_us: u64, to_us: u64) -> Self {
        let to_us = to_us.max(from_us.saturating_add(1_000_000));
        Self { from_us, to_us }
    }

    /// Returns the time that these moments cover.
    pub fn of(moments: &[Moment]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        Some(Self::new(first.unix_us, last.unix_us))
    }

    /// Returns its length, microseconds.
    pub fn length_us(self) -> u64 {
        self.to_us - self.from_us
    }

    /// Returns where a moment is in it: 0 at its beginning, 1 at its end.
    pub fn share_at(self, unix_us: u64) -> f64 {
        (unix_us as f64 - self.from_us as f64) / self.length_us() as f64
    }
}

/// What happened in one column. What is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Column {
    /// The phase that the server was in; of several, the one that matters most.
    pub phase: Option<Phase>,
    /// Lowest and highest memory tracked by the allocator, bytes.
    pub used_memory: Option<(u64, u64)>,
    /// `maxmemory`, bytes.
    pub maxmemory: Option<u64>,
    /// Highest replication and AOF buffers, bytes.
    pub not_counted: Option<u64>,
    /// Client buffers, when there were most of them.
    pub client_buffers: Option<ClientBuffers>,
    /// Connections in which requests waited, when there were most of them.
    pub clients_waiting: Option<u64>,
    /// How long the oldest of these requests had waited, when that was longest, microseconds.
    pub longest_wait_us: Option<u64>,
    /// Commands a second.
    pub commands: Option<f64>,
    /// Evicted keys a second.
    pub evicted: Option<f64>,
    /// Expired keys a second.
    pub expired: Option<f64>,
    /// Evicting calls, as a share of the time; `None` where they were not observed.
    pub evicting: Option<f64>,
    /// Expire cycles, as a share of the time.
    pub expiring: Option<f64>,
    /// CPU time of the main thread, as a share of the time.
    pub cpu: Option<f64>,
    /// Time in which the main thread wanted a CPU and had none, as a share of the time.
    pub waiting: Option<f64>,
}

/// Counters whose differences are spread over the columns, in the order of [`differences`].
const COUNTERS: usize = 7;

/// What a counter has grown by in a column, and in how much of the column that is known, microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Grown {
    by: f64,
    known_us: f64,
}

/// The same span in columns of the same length.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The time that they show.
    pub span: Span,
    /// From the first to the last.
    pub all: Vec<Column>,
}

impl Columns {
    /// Thins out the moments of a span, the oldest first. A column is as long as `least_us` at least, and there are `most` columns
    /// at most.
    pub fn of(moments: &[Moment], span: Span, least_us: u64, most: usize) -> Self {
        let fitting = usize::try_from(span.length_us() / least_us.max(1)).unwrap_or(usize::MAX);
        let count = fitting.clamp(1, most.max(1));
        let width = span.length_us() as f64 / count as f64;
        let place = |us: u64| us.saturating_sub(span.from_us) as f64 / width;
        let mut all = vec![Column::default(); count];
        for moment in moments {
            if (span.from_us..=span.to_us).contains(&moment.unix_us) {
                let index = (place(moment.unix_us) as usize).min(count - 1);
                take_in(&mut all[index], moment);
            }
        }
        let mut grown = vec![[Grown::default(); COUNTERS]; count];
        for pair in moments.windows(2) {
            let [before, after] = pair else { continue };
            let Some(by) = differences(before, after) else {
                continue;
            };
            let (from, to) = (
                before.unix_us.max(span.from_us),
                after.unix_us.min(span.to_us),
            );
            if from >= to {
                continue;
            }
            let elapsed = (after.unix_us - before.unix_us) as f64;
            let (from, to) = (place(from), place(to));
            for (index, grown) in grown.iter_mut().enumerate().skip(from as usize) {
                let within = (to.min(index as f64 + 1.0) - from.max(index as f64)) * width;
                if within <= 0.0 {
                    break;
                }
                for (grown, by) in grown.iter_mut().zip(by) {
                    if let Some(by) = by {
                        grown.by += by * within / elapsed;
                        grown.known_us += within;
                    }
                }
            }
        }
        for (column, grown) in all.iter_mut().zip(&grown) {
            // Known for less than half of the column, it says little of it.
            let rate =
                |grown: &Grown| (2.0 * grown.known_us >= width).then(|| grown.by / grown.known_us);
            let [commands, evicted, expired, evicting, expiring, cpu, waiting] =
                grown.each_ref().map(rate);
            let second = |rate: Option<f64>| rate.map(|rate| rate * 1e6);
            column.commands = second(commands);
            column.evicted = second(evicted);
            column.expired = second(expired);
            column.evicting = evicting;
            column.expiring = expiring;
            column.cpu = cpu;
            column.waiting = waiting;
        }
        Self { span, all }
    }

    /// Returns the length of a column, microseconds.
    pub fn width_us(&self) -> f64 {
        self.span.length_us() as f64 / self.all.len() as f64
    }
}

/// Takes in what a server was at a moment.
fn take_in(column: &mut Column, moment: &Moment) {
    let weight = |phase: Option<Phase>| match phase {
        None => 0,
        Some(Phase::NotSaturated) => 1,
        Some(Phase::Reclaim) => 2,
        Some(Phase::Saturated) => 3,
    };
    if weight(moment.phase) > weight(column.phase) {
        column.phase = moment.phase;
    }
    if let Some(used) = moment.used_memory {
        let (low, high) = column.used_memory.unwrap_or((used, used));
        column.used_memory = Some((low.min(used), high.max(used)));
    }
    column.maxmemory = moment.maxmemory.or(column.maxmemory);
    column.not_counted = column.not_counted.max(moment.not_counted);
    column.clients_waiting = column.clients_waiting.max(moment.clients_waiting);
    column.longest_wait_us = column.longest_wait_us.max(moment.longest_wait_us);
    let total = |buffers: Option<ClientBuffers>| buffers.map(ClientBuffers::total);
    if total(moment.client_buffers) > total(column.client_buffers) {
        column.client_buffers = moment.client_buffers;
    }
}

/// Returns by how much each counter grew between two moments; `None` where they are too far apart, or another agent or
/// server counted in between.
fn differences(before: &Moment, after: &Moment) -> Option<[Option<f64>; COUNTERS]> {
    let elapsed = after.unix_us.checked_sub(before.unix_us)?;
    if elapsed == 0 || elapsed > LONGEST_INTERVAL_US {
        return None;
    }
    let observed = after.observed_us.checked_sub(before.observed_us)?;
    let evicting = after.evicting_us.checked_sub(before.evicting_us)?;
    let grown = |counter: fn(&Moment) -> Option<u64>| {
        let grown = counter(after)?.checked_sub(counter(before)?)?;
        Some(grown as f64)
    };
    // Placing probes takes a little of the time.
    let is_observed = observed.saturating_add(elapsed / 20) >= elapsed;
    Some([
        grown(|moment| moment.commands),
        grown(|moment| moment.evicted_keys),
        grown(|moment| moment.expired_keys),
        is_observed.then_some(evicting as f64),
        grown(|moment| moment.expiring_us),
        grown(|moment| moment.cpu_us),
        grown(|moment| moment.waiting_us),
    ])
}

#[cfg(test)]
mod tests {
    use evictscope_records::fixture::burst_record;
    use evictscope_telemetry::{Moment, Phase};

    use super::{Columns, Span};

    fn columns() -> Option<(Columns, u64)> {
        let record = burst_record();
        let span = Span::of(&record.moments)?;
        let columns = Columns::of(&record.moments, span, 1_000_000, 600);
        Some((columns, record.began_us))
    }

    #[test]
    fn a_column_has_the_rates_of_its_time() {
        let Some((columns, began_us)) = columns() else {
            unreachable!("the record has moments");
        };
        let at = |second: i64| {
            let us = began_us.saturating_add_signed(1_000_000 * second);
            columns.all[(columns.span.share_at(us) * columns.all.len() as f64) as usize]
        };
        let near = |value: Option<f64>, expected: f64| {
            value.is_some_and(|value| (value - expected).abs() <= 0.02 * expected + 0.001)
        };
        let calm = at(-30);
        assert!(near(calm.commands, 30_000.0), "{calm:?}");
        assert!(near(calm.evicting, 0.0), "{calm:?}");
        assert!(near(calm.cpu, 0.6), "{calm:?}");
        assert_eq!(calm.phase, Some(Phase::NotSaturated));
        let burst = at(4);
        assert!(near(burst.commands, 8_000.0), "{burst:?}");
        assert!(near(burst.evicted, 40_000.0), "{burst:?}");
        assert!(near(burst.evicting, 0.8), "{burst:?}");
        assert_eq!(burst.phase, Some(Phase::Saturated));
        assert_eq!(
            (burst.clients_waiting, burst.longest_wait_us),
            (Some(2_000), Some(400_000))
        );
    }

    #[test]
    fn what_is_not_known_stays_unknown() {
        let mut moments = burst_record().moments;
        let Some(span) = Span::of(&moments) else {
            unreachable!("the record has moments");
        };
        // The agent was restarted: its counters begin again.
        let half = moments.len() / 2;
        for moment in &mut moments[half..] {
            moment.observed_us = 0;
            moment.commands = None;
        }
        let columns = Columns::of(&moments, span, 100_000, 2_000);
        let last = columns.all.last().copied().unwrap_or_default();
        assert_eq!((last.commands, last.evicting), (None, None));
        assert!(last.cpu.is_some());
        // Nothing was seen in between.
        let far: Vec<Moment> = moments.iter().step_by(200).copied().collect();
        let columns = Columns::of(&far, span, 100_000, 2_000);
        assert!(columns.all.iter().all(|column| column.cpu.is_none()));
    }

    #[test]
    fn there_are_no_more_columns_than_wanted() {
        let moments = burst_record().moments;
        let span = Span::new(0, 86_400_000_000);
        assert_eq!(Columns::of(&moments, span, 1, 720).all.len(), 720);
        assert_eq!(Columns::of(&[], Span::new(5, 5), 1 << 40, 720).all.len(), 1);
    }
}
