//! The rates of a server between two readings.

use std::collections::VecDeque;

use evictscope_model::answers::{TimelineAnswer, TimelineSample};

use crate::client::reading::{
    CALL_SECONDS, CLIENT_BUFFERS, CLIENTS_WAITING, COMMANDS, Cumulative, OBSERVED, Reading, STALLED, Selector,
    ServerReading,
};

/// The last two readings of an agent.
#[derive(Default)]
pub struct Readings {
    before: Reading,
    pub now: Reading,
    /// How far apart they are.
    seconds: f64,
}

/// Two readings of a server, from which its rates follow; `None` if one is not known.
#[derive(Clone, Copy)]
pub struct Rates<'a> {
    before: &'a ServerReading,
    pub now: &'a ServerReading,
    seconds: f64,
}

impl Readings {
    /// Begins with a reading, from which no rates follow yet.
    pub fn new(now: Reading) -> Self {
        Self { now, ..Self::default() }
    }

    pub fn add(&mut self, now: Reading, seconds: f64) {
        self.before = std::mem::replace(&mut self.now, now);
        self.seconds = seconds;
    }

    pub fn rates(&self, server: &str) -> Option<Rates<'_>> {
        Some(Rates::new(self.before.servers.get(server)?, self.now.servers.get(server)?, self.seconds))
    }
}

impl<'a> Rates<'a> {
    pub fn new(before: &'a ServerReading, now: &'a ServerReading, seconds: f64) -> Self {
        Self { before, now, seconds }
    }

    fn risen(self, metric: Selector) -> Option<f64> {
        Some(rise(self.before.get(metric)?, self.now.get(metric)?))
    }

    pub fn a_second(self, metric: Selector) -> Option<f64> {
        self.risen(metric).map(|risen| risen / self.seconds)
    }

    /// Returns the share of the time that a counter of seconds counts.
    pub fn share(self, metric: Selector) -> Option<f64> {
        self.a_second(metric).map(|share| share.min(1.0))
    }

    /// Returns how much a counter of evicting calls rises per second in which they are observed.
    pub fn an_observed_second(self, metric: Selector) -> Option<f64> {
        Some(self.risen(metric)? / self.observed()?)
    }

    fn observed(self) -> Option<f64> {
        self.risen(OBSERVED).filter(|seconds| *seconds > 0.0)
    }

    /// Returns the same for a histogram of evicting calls: not cumulative, and empty if none were observed.
    pub fn histogram(self, metric: Selector) -> Cumulative {
        let Some(observed) = self.observed() else { return Vec::new() };
        let (before, now) = (self.before.histogram(metric), self.now.histogram(metric));
        let mut below = 0.0;
        let rates = before.iter().zip(now).map(|((_, before), (bound, now))| {
            let up_to = rise(*before, now) / observed;
            let within = (up_to - below).max(0.0);
            below = up_to;
            (bound, within)
        });
        rates.collect()
    }
}

/// Returns how much a counter has risen. A counter that went back was reset, and has counted from 0 since.
fn rise(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

/// How many points are kept: ten minutes, as in the agent's timeline.
const KEPT: usize = 600;

/// A second of a server. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub clients_waiting: Option<f64>,
    /// Share of the time in which clients were stalled.
    pub stalled: Option<f64>,
    pub commands: Option<f64>,
    /// Share of the time that was spent in evicting calls.
    pub evicting: Option<f64>,
    /// Bytes.
    pub client_buffers: Option<f64>,
}

/// The last minutes of a server, the newest point last.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<Point>);

impl History {
    pub fn add(&mut self, rates: Rates<'_>) {
        self.0.push_back(Point {
            clients_waiting: rates.now.get(CLIENTS_WAITING),
            stalled: rates.share(STALLED),
            commands: rates.a_second(COMMANDS),
            evicting: rates.an_observed_second(CALL_SECONDS),
            client_buffers: rates.now.get(CLIENT_BUFFERS),
        });
        while self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Returns the last `count` points, the oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &Point> {
        self.0.iter().skip(self.0.len().saturating_sub(count))
    }
}

impl From<&TimelineAnswer> for History {
    /// Reduces a timeline to whole seconds. A second without a sample at each end has no rates.
    fn from(timeline: &TimelineAnswer) -> Self {
        let Some(start) = timeline.start else { return Self::default() };
        // 1 if the length of a bin makes no sense.
        let in_a_second = ((1.0 / timeline.bin_seconds).round() as usize).max(1);
        let since_start = |sample: &'_ TimelineSample| Some(sample.time?.seconds() - start.seconds());
        let mut samples = timeline.samples.iter().filter_map(|sample| Some((since_start(sample)?, sample))).peekable();
        let mut before: Option<(f64, &TimelineSample)> = None;
        let bins = timeline.eviction_call_seconds.chunks_exact(in_a_second);
        let points = bins.enumerate().map(|(second, bins)| {
            let end = (second + 1) as f64;
            let (mut newest, mut clients_waiting) = (None, None);
            while let Some(sample) = samples.next_if(|(at, _)| *at < end) {
                newest = Some(sample);
                clients_waiting = clients_waiting.max(sample.1.clients_waiting);
            }
            let risen = |of: fn(&TimelineSample) -> Option<f64>| {
                let ((from, before), (to, now)) = (before?, newest?);
                Some((of(now)? - of(before)?).max(0.0) / (to - from))
            };
            let point = Point {
                clients_waiting: clients_waiting.map(|clients| clients as f64),
                commands: risen(|sample| Some(sample.commands_processed? as f64)),
                stalled: risen(|sample| sample.stall_seconds).map(|share| share.min(1.0)),
                evicting: evicting(bins, timeline.bin_seconds),
                client_buffers: newest.and_then(|(_, sample)| Some(sample.client_buffers_bytes? as f64)),
            };
            before = newest;
            point
        });
        let points: Vec<Point> = points.collect();
        let old = points.len().saturating_sub(KEPT);
        Self(points.into_iter().skip(old).collect())
    }
}

/// Returns the share of evicting calls in the known bins.
fn evicting(bins: &[Option<f64>], bin_seconds: f64) -> Option<f64> {
    let known: Vec<f64> = bins.iter().copied().flatten().collect();
    let length = known.len() as f64 * bin_seconds;
    (length > 0.0).then(|| known.iter().sum::<f64>() / length)
}

#[cfg(test)]
mod tests {
    use evictscope_model::answers::TimelineAnswer;

    use super::{History, KEPT, Point, Rates};
    use crate::client::reading::tests::server;
    use crate::client::reading::{
        CALL_SECONDS, CALLS, CLIENT_BUFFERS, COMMANDS, CYCLES, DURATIONS, OBSERVED, Reading, ServerReading,
    };

    /// Returns a reading with these numbers of commands, evicting calls, their seconds, expire cycles, and seconds
    /// observed, and calls up to each bound.
    fn reading(values: [f64; 5], calls: [u64; 3]) -> anyhow::Result<ServerReading> {
        let metrics = [COMMANDS, CALLS, CALL_SECONDS, CYCLES, OBSERVED];
        let labels = "server=\"6379\",kind=\"evicting\"";
        let mut text = format!("# TYPE {DURATIONS} histogram\n");
        for (bound, calls) in ["0.001", "0.002", "+Inf"].iter().zip(calls) {
            text += &format!("{DURATIONS}_bucket{{{labels},le=\"{bound}\"}} {calls}\n");
        }
        for (metric, value) in metrics.iter().zip(values) {
            text += &format!("{metric}{{{labels}}} {value}\n");
        }
        Ok(Reading::parse(&text)?.servers.remove("6379").unwrap_or_default())
    }

    #[test]
    fn rates_are_by_the_second_and_those_of_evicting_calls_by_one_that_was_observed() -> anyhow::Result<()> {
        let before = &reading([100.0, 20.0, 1.0, 10.0, 5.0], [10, 20, 20])?;
        for (until, seen, calls, buckets) in [
            (7.0, 1.0, [Some(6.0), Some(0.125)], &[2.0, 3.0, 1.0][..]),
            (5.5, 0.25, [Some(24.0), Some(0.5)], &[8.0, 12.0, 4.0]),
            (5.0, 0.0, [None, None], &[]),
        ] {
            let now = &reading([40.0, 32.0, 1.25, 34.0, until], [14, 30, 32])?;
            let rates = Rates::new(before, now, 2.0);
            assert_eq!(rates.a_second(COMMANDS), Some(20.0), "reset in between");
            assert_eq!(rates.a_second(CYCLES), Some(12.0), "always observed");
            assert_eq!(rates.share(OBSERVED), Some(seen));
            assert_eq!([CALLS, CALL_SECONDS].map(|metric| rates.an_observed_second(metric)), calls);
            let histogram = rates.histogram(DURATIONS);
            let within: Vec<_> = histogram.iter().map(|(_, calls)| *calls).collect();
            assert_eq!(within, buckets);
        }
        Ok(())
    }

    #[test]
    fn a_timeline_becomes_points_of_a_second() -> anyhow::Result<()> {
        let timeline: TimelineAnswer = serde_json::from_value(serde_json::json!({
            "start": "2026-11-21T08:14:23.500Z",
            "bin_seconds": 0.5,
            "eviction_call_seconds": [0.0, 0.1, null, 0.2, null, null, 0.5],
            "samples": [
                {"time": "2026-11-21T08:14:23.600Z", "client_buffers_bytes": 1, "commands_processed": 70,
                 "clients_waiting": 9},
                {"time": "2026-11-21T08:14:24.400Z", "client_buffers_bytes": 2, "commands_processed": 100,
                 "clients_waiting": 4, "stall_seconds": 1.0},
                {"time": "2026-11-21T08:14:25.400Z", "client_buffers_bytes": null, "commands_processed": 300,
                 "stall_seconds": 1.5},
            ],
        }))?;
        let points: Vec<Point> = History::from(&timeline).last(10).copied().collect();
        let first =
            Point { clients_waiting: Some(9.0), evicting: Some(0.1), client_buffers: Some(2.0), ..Point::default() };
        let second = Point { commands: Some(200.0), stalled: Some(0.5), evicting: Some(0.4), ..Point::default() };
        assert_eq!(points, [first, second, Point::default()]);
        Ok(())
    }

    #[test]
    fn a_history_stays_bounded() {
        let mut history = History::default();
        for bytes in 0..KEPT + 10 {
            let now = &server(&[(CLIENT_BUFFERS, bytes as f64)]);
            history.add(Rates::new(now, now, 1.0));
        }
        assert_eq!(history.last(usize::MAX).count(), KEPT);
        assert_eq!(history.last(1).next().and_then(|point| point.client_buffers), Some((KEPT + 9) as f64));
    }
}
