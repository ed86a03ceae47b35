//! Thins moments out to the columns of a drawing.

use std::ops::Range;
use std::time::Duration;

use evictscope_telemetry::{Burst, Moment, Phase, microseconds};

use super::drawing::Span;

/// Readings are a tenth of a second apart while a server does not evict, and some are late: a shorter column may have
/// none.
const LEAST_US: u64 = 200_000;
/// More could not be told apart.
const MOST: usize = 800;

/// If two moments are further apart, it is not known what happened when between them.
pub const LONGEST_INTERVAL_US: u64 = 3_000_000;

/// A span in columns of the same length.
#[derive(Clone, Debug)]
pub struct Columns {
    pub span: Span,
    /// The server's phase in each column; of several, the one that matters most.
    pub phases: Vec<Option<Phase>>,
    moments: Vec<Vec<Moment>>,
    /// Pairs of moments between which it is known what happened.
    intervals: Vec<[Moment; 2]>,
}

impl Columns {
    /// Divides the moments of a span, the oldest first.
    pub fn of(moments: &[Moment], span: Span) -> Self {
        let count = usize::try_from(span.length_us() / LEAST_US).unwrap_or(usize::MAX).clamp(1, MOST);
        let pairs = moments.array_windows().copied();
        let mut columns = Self {
            span,
            phases: vec![None; count],
            moments: vec![Vec::new(); count],
            intervals: pairs.filter(|[before, after]| is_known(before, after)).collect(),
        };
        for moment in moments {
            if (span.from_us..=span.to_us).contains(&moment.unix_us()) {
                let index = (columns.place(moment.unix_us()) as usize).min(count - 1);
                columns.moments[index].push(*moment);
            }
        }
        // An idle server is read once a second: until the next reading, it is as it was.
        for [before, after] in &columns.intervals {
            let [from, to] = [before, after].map(|moment| columns.place(moment.unix_us()) as usize);
            for moments in columns.moments.iter_mut().take(to).skip(from).filter(|moments| moments.is_empty()) {
                moments.push(*before);
            }
        }
        let weight = |phase: &Phase| match phase {
            Phase::NotSaturated => 1,
            Phase::Reclaim => 2,
            Phase::Saturated => 3,
        };
        columns.phases = columns.each(|moments| moments.iter().filter_map(|moment| moment.phase).max_by_key(weight));
        columns
    }

    /// Replaces the phases that were known at each moment by the exact bounds of a burst: that a call was the last one
    /// is only known a second later.
    pub fn mark(&mut self, burst: &Burst) {
        let end = burst.started.saturating_add(burst.duration);
        let over = end.saturating_add(burst.reclaim);
        let [from, end, over] = [burst.started, end, over].map(|time| microseconds(time) as f64);
        let (width, begin) = (self.width_us(), self.span.from_us as f64);
        for (index, phase) in self.phases.iter_mut().enumerate() {
            let middle = begin + (index as f64 + 0.5) * width;
            if (from..=end).contains(&middle) {
                *phase = Some(Phase::Saturated);
            } else if (end..=over).contains(&middle) {
                *phase = Some(Phase::Reclaim);
            }
        }
    }

    pub fn count(&self) -> usize {
        self.moments.len()
    }

    pub fn width_us(&self) -> f64 {
        self.span.length_us() as f64 / self.count() as f64
    }

    /// Returns where a time is, in columns.
    fn place(&self, us: u64) -> f64 {
        us.saturating_sub(self.span.from_us) as f64 / self.width_us()
    }

    pub fn each<T>(&self, of: impl Fn(&[Moment]) -> Option<T>) -> Vec<Option<T>> {
        self.moments.iter().map(|moments| of(moments)).collect()
    }

    pub fn highest(&self, value: fn(&Moment) -> Option<u64>) -> Vec<Option<f64>> {
        self.each(|moments| Some(moments.iter().filter_map(value).max()? as f64))
    }

    pub fn per_second(&self, counter: fn(&Moment) -> Option<u64>) -> Vec<Option<f64>> {
        let grown = self.grown(|before, after| counter(after)?.checked_sub(counter(before)?)).into_iter();
        grown.map(|grown| Some(grown? * 1e6)).collect()
    }

    /// Returns the share of each column that was spent on what a time adds up.
    pub fn share(&self, time: fn(&Moment) -> Option<Duration>) -> Vec<Option<f64>> {
        self.grown(|before, after| microseconds(time(after)?).checked_sub(microseconds(time(before)?)))
    }

    /// Returns the share of each column that evicting calls took, where they were observed.
    pub fn evicting(&self) -> Vec<Option<f64>> {
        self.grown(|before, after| {
            let elapsed = after.unix_us() - before.unix_us();
            let observed = microseconds(after.observed) - microseconds(before.observed);
            // Placing probes takes a little of the time.
            let is_observed = observed.saturating_add(elapsed / 20) >= elapsed;
            is_observed.then(|| microseconds(after.evicting) - microseconds(before.evicting))
        })
    }

    /// Returns the average growth per microsecond in each column; `by` returns the growth between two moments.
    fn grown(&self, by: impl Fn(&Moment, &Moment) -> Option<u64>) -> Vec<Option<f64>> {
        let width = self.width_us();
        // The growth in each column, and for how many microseconds of it that is known.
        let mut columns = vec![(0.0, 0.0); self.count()];
        for [before, after] in &self.intervals {
            let Some(by) = by(before, after) else { continue };
            let elapsed = (after.unix_us() - before.unix_us()) as f64;
            let (from, to) = (self.place(before.unix_us()), self.place(after.unix_us()));
            for (index, (grown, known_us)) in columns.iter_mut().enumerate().skip(from as usize) {
                let within = (to.min(index as f64 + 1.0) - from.max(index as f64)) * width;
                if within <= 0.0 {
                    break;
                }
                *grown += by as f64 * within / elapsed;
                *known_us += within;
            }
        }
        // If it is known for less than half of the column, it says little about it.
        let is_enough = |known_us: f64| 2.0 * known_us >= width;
        columns.into_iter().map(|(grown, known_us)| is_enough(known_us).then(|| grown / known_us)).collect()
    }
}

/// Returns whether it is known what happened between two moments: they are not too far apart, and the same agent and
/// server counted at both.
fn is_known(before: &Moment, after: &Moment) -> bool {
    let elapsed = after.unix_us().checked_sub(before.unix_us());
    elapsed.is_some_and(|elapsed| (1..=LONGEST_INTERVAL_US).contains(&elapsed))
        && after.observed >= before.observed
        && after.evicting >= before.evicting
}

/// Returns the runs of neighbours for which `is_so` holds.
pub fn runs<T>(all: &[T], is_so: impl Fn(&T) -> bool) -> Vec<Range<usize>> {
    let mut end = 0;
    let runs = all.chunk_by(|one, next| is_so(one) == is_so(next));
    runs.filter_map(|run| {
        let begin = end;
        end += run.len();
        is_so(run.first()?).then_some(begin..end)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use evictscope_records::fixture::burst_record;
    use evictscope_telemetry::{Moment, Phase};

    use super::{Columns, runs};
    use crate::pages::drawing::Span;

    fn columns(moments: &[Moment]) -> anyhow::Result<Columns> {
        Ok(Columns::of(moments, Span::of(&burst_record().moments).context("the record has no moments")?))
    }

    #[test]
    fn a_column_has_the_rates_of_its_time() -> anyhow::Result<()> {
        let record = burst_record();
        let columns = columns(&record.moments)?;
        let at = |values: Vec<Option<f64>>, second: i64| {
            let us = record.began_us.saturating_add_signed(1_000_000 * second);
            values[columns.place(us) as usize].unwrap_or(f64::NAN)
        };
        let (commands, cpu) = (|moment: &Moment| moment.commands, |moment: &Moment| moment.cpu);
        for (values, calm, burst) in [
            (columns.per_second(commands), 30_000.0, 8_000.0),
            (columns.per_second(|moment| moment.evicted_keys), 0.0, 40_000.0),
            (columns.evicting(), 0.0, 0.8),
            (columns.share(cpu), 0.6, 1.0),
            (columns.highest(|moment| moment.clients_waiting), 1.0, 2_000.0),
        ] {
            for (second, expected) in [(-30, calm), (4, burst)] {
                let value = at(values.clone(), second);
                assert!((value - expected).abs() <= 0.02 * expected + 0.001, "{value}, not {expected}");
            }
        }
        let phases = runs(&columns.phases, |phase| *phase == Some(Phase::Saturated));
        assert!(phases.len() == 1 && phases[0].contains(&(columns.place(record.began_us + 1) as usize)));
        Ok(())
    }

    #[test]
    fn what_is_not_known_stays_unknown() -> anyhow::Result<()> {
        let mut moments = burst_record().moments;
        // The agent was restarted: its counters begin again.
        let half = moments.len() / 2;
        for moment in &mut moments[half..] {
            moment.observed = std::time::Duration::ZERO;
            moment.commands = None;
        }
        let restarted = columns(&moments)?;
        let last = |values: Vec<Option<f64>>| values.last().copied().flatten();
        assert_eq!(last(restarted.per_second(|moment| moment.commands)), None);
        assert_eq!(last(restarted.evicting()), None);
        assert!(last(restarted.share(|moment| moment.cpu)).is_some());
        // Nothing was seen in between.
        let far: Vec<Moment> = moments.iter().step_by(200).copied().collect();
        assert!(columns(&far)?.share(|moment| moment.cpu).iter().all(Option::is_none));
        Ok(())
    }

    #[test]
    fn a_server_is_as_it_was_until_the_next_reading() -> anyhow::Result<()> {
        let moments = burst_record().moments;
        let thinned = moments.iter().filter(|moment| moment.phase == Some(Phase::NotSaturated));
        // A second apart, and then four.
        let (second, four): (Vec<Moment>, Vec<Moment>) =
            (thinned.clone().step_by(10).copied().collect(), thinned.step_by(40).copied().collect());
        let known = |moments: &[Moment]| {
            let memory = columns(moments)?.highest(|moment| moment.used_memory);
            anyhow::Ok(memory[..100].iter().flatten().count())
        };
        assert_eq!(known(&second)?, 100);
        assert!(known(&four)? <= 10);
        Ok(())
    }

    #[test]
    fn there_are_no_more_columns_than_can_be_told_apart() {
        assert_eq!(Columns::of(&burst_record().moments, Span::new(0, 86_400_000_000)).count(), 800);
        assert_eq!(Columns::of(&[], Span::new(5, 5)).count(), 5);
    }

    #[test]
    fn runs_of_what_is_known() {
        assert_eq!(runs(&[None, Some(1.0), Some(2.0), None, Some(3.0)], Option::is_some), [1..3, 4..5]);
    }
}
