//! When clients of a server were stalled, from its moments.

use crate::{Moment, StallCause};

/// A time in which one cause stalled clients, since 1970, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallTime {
    /// Its beginning.
    pub from_us: u64,
    /// Its end.
    pub to_us: u64,
    /// Its cause.
    pub by: StallCause,
}

impl StallTime {
    /// Returns its length, microseconds.
    pub fn length_us(self) -> u64 {
        self.to_us - self.from_us
    }
}

/// Returns when clients were stalled between the first and the last of these moments, which are in order of time.
///
/// The time that a look adds ends at that look, so it may begin before the preceding moment.
pub fn stall_times(moments: impl IntoIterator<Item = Moment>) -> impl Iterator<Item = StallTime> {
    let mut last: Option<Moment> = None;
    moments.into_iter().filter_map(move |now| {
        let before = last.replace(now)?;
        let stalled_us = now.stalled_us?.checked_sub(before.stalled_us?)?;
        (stalled_us > 0).then(|| StallTime {
            from_us: now.unix_us.saturating_sub(stalled_us),
            to_us: now.unix_us,
            by: now.stalled_by.unwrap_or(StallCause::Unknown),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{StallTime, stall_times};
    use crate::{Moment, ServerState, Snapshot, StallCause};

    fn moment(unix_us: u64, stalled_us: Option<u64>, stalled_by: Option<StallCause>) -> Moment {
        let nothing = Moment::new(&Snapshot::default(), &ServerState::new(), None, true);
        Moment { unix_us, stalled_us, stalled_by, ..nothing }
    }

    #[test]
    fn a_stall_ends_at_the_look_that_saw_it() {
        let by = Some(StallCause::Commands);
        let moments = [
            moment(1_000_000, Some(5_000), by),
            moment(1_100_000, Some(5_000), None),
            // Looks are a second apart while nothing is known to wait.
            moment(2_000_000, Some(905_000), by),
            moment(2_020_000, Some(925_000), None),
            moment(2_040_000, None, None),
            moment(2_060_000, Some(990_000), by),
            // Counted by another agent.
            moment(2_080_000, Some(0), None),
        ];
        let times: Vec<_> = stall_times(moments).collect();
        let time = |from_us, to_us, by| StallTime { from_us, to_us, by };
        let expected =
            [time(1_100_000, 2_000_000, StallCause::Commands), time(2_000_000, 2_020_000, StallCause::Unknown)];
        assert_eq!(times, expected);
        assert_eq!(times[0].length_us(), 900_000);
    }
}
