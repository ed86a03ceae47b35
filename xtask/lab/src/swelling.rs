//! How client buffers swell while the server is slow.
//!
//! Replies leave more slowly than requests arrive. Each round of the event loop therefore has more requests than the
//! one before, and their replies stay in the clients' output buffers until the end of the round. A round of `n`
//! requests takes `n / response` seconds, in which `n x arrival / response` requests come in. Each round is therefore
//! `arrival / response` times as large as the one before, and takes as much longer until its replies are held. Over
//! time, the buffers grow by `(arrival - response) x bytes of a reply x response / arrival` a second: as the backlog
//! does, but for the part that still waits in the kernel, where Redis does not count it.

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
    /// Bytes of a reply, on average.
    pub reply_bytes: f64,
    /// `(arrival - response) x reply_bytes`: the growth if all of the backlog were in the buffers.
    pub predicted_of_backlog: f64,
    /// That times `response / arrival`: without the part that still waits in the kernel.
    pub predicted: f64,
    /// The growth of `mem_clients_normal` up to its highest sample. Only the highest sample of a round has all its
    /// replies.
    pub measured_client_buffers: f64,
    /// The same for `used_memory`.
    pub measured_used_memory: f64,
    /// The backlog at the end.
    pub backlog_at_end: u64,
    /// `mem_clients_normal` before.
    pub client_buffers_before: u64,
    /// The highest.
    pub client_buffers_peak: u64,
    /// Evictions, of which there should be none.
    pub evicted_keys: u64,
}

impl Swelling {
    /// Returns what the record shows of a stall from `start` to `end`, or `None` where it shows too little.
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
