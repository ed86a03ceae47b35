//! How client buffers swell while the server is slow.
//!
//! Replies leave more slowly than requests arrive, the event loop finds more
//! requests in each round than in the one before, and holds the replies of a whole round in the
//! clients' output buffers before it writes them. A round of `n` requests takes `n / response`
//! seconds, in which `arrival` times as many seconds' requests come in: each round is
//! `arrival / response` times as large as the one before, and it ends, when its replies are held,
//! `arrival / response` rounds later. Seen over time, what the buffers hold therefore grows by
//! `(arrival - response) x bytes of a reply x response / arrival` a second: the backlog's growth,
//! less the part of it that still waits in the kernel, where Redis does not count it.

use serde::Serialize;

use crate::{counts::Load, sample::Sample};

/// How client buffers swelled while the server was slow. Rates are a second, sizes bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Swelling {
    /// When the server became slow, in seconds since 1970.
    pub start: f64,
    /// When it no longer was.
    pub end: f64,
    /// Requests that fell due.
    pub arrival: f64,
    /// Replies.
    pub response: f64,
    /// Of one reply, on average.
    pub reply_bytes: f64,
    /// `(arrival - response) x reply_bytes`: the growth if all of the backlog were in the buffers.
    pub predicted_of_backlog: f64,
    /// That times `response / arrival`: without what still waits in the kernel.
    pub predicted: f64,
    /// From `mem_clients_normal` before to its highest sample, by the time between them. Replies
    /// are held until the end of a round, so only the highest of a round tells.
    pub measured_client_buffers: f64,
    /// Of `used_memory`, likewise.
    pub measured_used_memory: f64,
    /// The backlog at the end.
    pub backlog_at_end: u64,
    /// `mem_clients_normal` before.
    pub client_buffers_before: u64,
    /// The highest.
    pub client_buffers_peak: u64,
    /// Evictions: there must be none.
    pub evicted_keys: u64,
}

impl Swelling {
    /// What the record shows of a stall from `start` to `end`. None if it shows too little.
    pub fn of(start: f64, end: f64, samples: &[Sample], loads: &[Load]) -> Option<Self> {
        let before = samples.iter().rfind(|sample| sample.at <= start)?;
        let within = || {
            samples
                .iter()
                .filter(|sample| sample.at > start && sample.at <= end)
        };
        let last = within().next_back()?;
        let growth = |value: fn(&Sample) -> u64| {
            let highest = within().max_by_key(|sample| value(sample))?;
            let grown = value(highest) as f64 - value(before) as f64;
            Some(grown / (highest.at - start))
        };
        let mut counts = loads
            .iter()
            .filter(|load| load.at >= start && load.at <= end);
        let (first_count, last_count) = (counts.next()?, counts.next_back()?);
        let seconds = last_count.at - first_count.at;
        let rate = |from: u64, to: u64| (to - from) as f64 / seconds;
        let arrival = rate(first_count.totals.due, last_count.totals.due);
        let response = rate(first_count.totals.answered, last_count.totals.answered);
        let answered = last_count.totals.answered - first_count.totals.answered;
        let bytes = last_count.totals.bytes_received - first_count.totals.bytes_received;
        let reply_bytes = bytes as f64 / answered.max(1) as f64;
        let predicted_of_backlog = (arrival - response) * reply_bytes;
        Some(Self {
            start,
            end,
            arrival,
            response,
            reply_bytes,
            predicted_of_backlog,
            predicted: predicted_of_backlog * response / arrival,
            measured_client_buffers: growth(|sample| sample.client_buffers)?,
            measured_used_memory: growth(|sample| sample.used_memory)?,
            backlog_at_end: last_count.backlog,
            client_buffers_before: before.client_buffers,
            client_buffers_peak: within().map(|sample| sample.client_buffers).max()?,
            evicted_keys: last.evicted_keys - before.evicted_keys,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Totals;

    #[test]
    fn the_prediction_is_of_the_backlog_and_the_measurement_of_the_buffers() {
        let at = |tenth: u32| f64::from(tenth) / 10.0;
        let samples: Vec<_> = (0..200)
            .map(|tenth| Sample {
                at: at(tenth),
                // 1,000 bytes a second from second 5 to 15.
                client_buffers: 500 + 100 * u64::from(tenth.clamp(50, 150) - 50),
                used_memory: 9000,
                ..Sample::default()
            })
            .collect();
        let loads: Vec<_> = (0..200)
            .map(|tenth| Load {
                at: at(tenth),
                totals: Totals {
                    due: 10 * u64::from(tenth),
                    answered: 8 * u64::from(tenth),
                    bytes_received: 8 * 50 * u64::from(tenth),
                    ..Totals::default()
                },
                backlog: 2 * u64::from(tenth),
                ..Load::default()
            })
            .collect();
        let swelling = Swelling::of(5.0, 15.0, &samples, &loads);
        let Some(swelling) = swelling else {
            panic!("nothing found");
        };
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-6 * expected;
        assert!(near(swelling.arrival, 100.0), "{swelling:?}");
        assert!(near(swelling.response, 80.0));
        assert!(near(swelling.reply_bytes, 50.0));
        assert!(near(swelling.predicted_of_backlog, 1000.0));
        assert!(near(swelling.predicted, 800.0));
        assert!(near(swelling.measured_client_buffers, 1000.0));
        assert_eq!(swelling.measured_used_memory, 0.0);
        assert_eq!(swelling.client_buffers_peak, 10_500);
    }

    #[test]
    fn without_samples_there_is_no_swelling() {
        assert!(Swelling::of(5.0, 15.0, &[], &[]).is_none());
    }
}
