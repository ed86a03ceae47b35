//! The series of one server, and what the prometheus crate makes of them.

use evictscope_telemetry::HistogramView;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricType};

/// One series of one server: its labels beside `server`, and its value.
pub(super) struct Series<'a> {
    labels: Vec<(&'static str, String)>,
    value: Value<'a>,
}

pub(super) enum Value<'a> {
    Number(f64),
    Histogram(HistogramView<'a>, Unit),
}

/// What the values of a histogram are divided by to get the exported unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Bytes,
    /// From nanoseconds.
    Seconds,
}

/// Returns the series of a family that has no label but `server`; no series without a value.
pub(super) fn single(value: Option<f64>) -> Vec<Series<'static>> {
    let series = |number| Series::new(&[], Value::Number(number));
    value.map(series).into_iter().collect()
}

/// Returns the series of a histogram that has no label but `server`.
pub(super) fn histogram(totals: Option<HistogramView<'_>>, unit: Unit) -> Vec<Series<'_>> {
    let series = |totals| Series::new(&[], Value::Histogram(totals, unit));
    totals.map(series).into_iter().collect()
}

/// Returns a series for each value of `label`.
pub(super) fn by<L: ToString>(
    label: &'static str,
    values: impl IntoIterator<Item = (L, f64)>,
) -> Vec<Series<'static>> {
    let series =
        |(name, value): (L, f64)| Series::new(&[(label, &name.to_string())], Value::Number(value));
    values.into_iter().map(series).collect()
}

impl<'a> Series<'a> {
    pub(super) fn new(labels: &[(&'static str, &str)], value: Value<'a>) -> Self {
        let owned = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Self {
            labels: owned.collect(),
            value,
        }
    }

    /// Returns its labels beside `server`.
    pub(super) fn labels(&self) -> &[(&'static str, String)] {
        &self.labels
    }

    /// Returns the type of the family of this name: names of counters, and no others, end in `_total`.
    pub(super) fn kind(&self, family: &str) -> MetricType {
        match self.value {
            Value::Histogram(..) => MetricType::HISTOGRAM,
            Value::Number(_) if family.ends_with("_total") => MetricType::COUNTER,
            Value::Number(_) => MetricType::GAUGE,
        }
    }

    /// Converts to a metric of a family of `kind`.
    pub(super) fn metric(&self, server: &str, kind: MetricType) -> Metric {
        let others = self.labels.iter().map(|(name, value)| label(name, value));
        let labels = std::iter::once(label("server", server)).chain(others);
        let mut metric = Metric::from_label(labels.collect());
        match self.value {
            Value::Histogram(totals, unit) => metric.set_histogram(proto_histogram(totals, unit)),
            Value::Number(value) if kind == MetricType::COUNTER => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Value::Number(value) => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        metric
    }
}

fn proto_histogram(totals: HistogramView<'_>, unit: Unit) -> Histogram {
    let divisor = match unit {
        Unit::Bytes => 1.0,
        Unit::Seconds => 1e9,
    };
    let buckets = totals.cumulative().map(|(bound, up_to)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound as f64 / divisor);
        bucket.set_cumulative_count(up_to);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(totals.count());
    histogram.set_sample_sum(totals.sum() as f64 / divisor);
    histogram
}

pub(super) fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}
