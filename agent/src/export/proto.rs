//! Metrics of one server, in the types of the prometheus crate.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric};

use super::server::ExportedServer;
use crate::telemetry::HistogramTotals;

/// Labels beside `server`, with their values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// What the values of a histogram are divided by to get the exported unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Bytes,
    /// From nanoseconds.
    Seconds,
    /// From millionths.
    Ratio,
}

impl Unit {
    fn divisor(self) -> f64 {
        match self {
            Self::Bytes => 1.0,
            Self::Seconds => 1e9,
            Self::Ratio => 1e6,
        }
    }
}

pub(super) fn gauge(server: &ExportedServer, labels: Labels<'_>, value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = metric(server, labels);
    metric.set_gauge(gauge);
    metric
}

pub(super) fn counter(server: &ExportedServer, labels: Labels<'_>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = metric(server, labels);
    metric.set_counter(counter);
    metric
}

pub(super) fn histogram(
    server: &ExportedServer,
    labels: Labels<'_>,
    totals: &HistogramTotals,
    unit: Unit,
) -> Metric {
    let buckets = totals.cumulative().map(|(bound, up_to)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound as f64 / unit.divisor());
        bucket.set_cumulative_count(up_to);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(totals.count());
    histogram.set_sample_sum(totals.sum() as f64 / unit.divisor());
    let mut metric = metric(server, labels);
    metric.set_histogram(histogram);
    metric
}

fn metric(server: &ExportedServer, labels: Labels<'_>) -> Metric {
    let server = label("server", &server.label);
    let others = labels.iter().map(|(name, value)| label(name, value));
    Metric::from_label(std::iter::once(server).chain(others).collect())
}

pub(super) fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}
