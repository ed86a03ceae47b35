//! A metric family of one server, and its conversion for the prometheus crate.

use std::borrow::Cow;

use evictscope_host::printable;
use evictscope_model::{Member, MemberMetric, MetricEntry};
use evictscope_telemetry::HistogramView;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// A family with the series of one server.
pub struct Family<'a> {
    pub name: &'static str,
    help: Cow<'static, str>,
    kind: MetricType,
    pub series: Vec<Series<'a>>,
}

/// One series: its labels other than `server`, and its value.
pub struct Series<'a> {
    pub labels: Vec<(&'static str, String)>,
    value: Value<'a>,
}

enum Value<'a> {
    Number(f64),
    /// And what its values are divided by: [`BYTES`] or [`SECONDS`].
    Histogram(HistogramView<'a>, f64),
}

pub const BYTES: f64 = 1.0;
/// From nanoseconds.
pub const SECONDS: f64 = 1e9;

/// Returns a family with no label but `server`; it has no series if the value is not known.
pub fn single(metric: &MetricEntry, value: Option<f64>) -> Family<'static> {
    Family::new(metric, value.map(|number| Series::number(&[], number)))
}

pub fn histogram<'a>(metric: &MetricEntry, totals: Option<HistogramView<'a>>, unit: f64) -> Family<'a> {
    Family::new(metric, totals.map(|totals| Series::histogram(&[], totals, unit)))
}

/// Returns a family with a series for each value of its first label.
pub fn by<L: ToString>(metric: &MetricEntry, values: impl IntoIterator<Item = (L, f64)>) -> Family<'static> {
    let label = metric.labels.first().copied().unwrap_or_default();
    let series = |(value, number): (L, f64)| Series::number(&[(label, &value.to_string())], number);
    Family::new(metric, values.into_iter().map(series))
}

pub fn number(value: bool) -> f64 {
    f64::from(u8::from(value))
}

impl<'a> Family<'a> {
    pub fn new(metric: &MetricEntry, series: impl IntoIterator<Item = Series<'a>>) -> Self {
        Self {
            name: metric.name,
            help: metric.help.into(),
            kind: if metric.is_histogram { MetricType::HISTOGRAM } else { kind_of(metric.name) },
            series: series.into_iter().collect(),
        }
    }

    /// Returns the family that exports a member of `server` unchanged.
    pub fn of_member(member: Member, metric: MemberMetric, value: Option<u64>) -> Self {
        Self {
            name: metric.name,
            help: member.help(metric).into(),
            kind: kind_of(metric.name),
            series: value.map(|value| Series::number(&[], value as f64)).into_iter().collect(),
        }
    }

    /// Returns the exported form of the family, still without series.
    pub fn begun(&self) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.clone().into_owned());
        family.set_field_type(self.kind);
        family
    }

    /// Adds the series, with the label `server` if they belong to a server.
    pub fn add_to(&self, family: &mut MetricFamily, server: Option<&str>) {
        family.mut_metric().extend(self.series.iter().map(|series| series.metric(server, self.kind)));
    }
}

fn kind_of(name: &str) -> MetricType {
    if name.ends_with("_total") { MetricType::COUNTER } else { MetricType::GAUGE }
}

impl<'a> Series<'a> {
    pub fn number(labels: &[(&'static str, &str)], number: f64) -> Self {
        Self::new(labels, Value::Number(number))
    }

    pub fn histogram(labels: &[(&'static str, &str)], totals: HistogramView<'a>, unit: f64) -> Self {
        Self::new(labels, Value::Histogram(totals, unit))
    }

    fn new(labels: &[(&'static str, &str)], value: Value<'a>) -> Self {
        // Others chose some of them.
        let owned = |(name, value): &(_, &str)| (*name, printable(value));
        Self { labels: labels.iter().map(owned).collect(), value }
    }

    fn metric(&self, server: Option<&str>, kind: MetricType) -> Metric {
        let server = server.map(|server| label("server", server));
        let others = self.labels.iter().map(|(name, value)| label(name, value));
        let mut metric = Metric::from_label(server.into_iter().chain(others).collect());
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

fn proto_histogram(totals: HistogramView<'_>, divisor: f64) -> Histogram {
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

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}
