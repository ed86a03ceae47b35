//! Metric families in Prometheus's text format.
//!
//! The prometheus crate's encoder makes the same text, byte for byte (a test compares them), but
//! spends most of a scrape on it: it allocates a string for each number, and writes the labels of a
//! histogram anew for each of its buckets. With many servers that is what a scrape costs.

use std::fmt::Write as _;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// The largest whole number below which each has a `f64` of its own.
const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// The kinds of metrics that the agent has.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text of these families. Those without series are left out, as is what the agent does not
/// have: summaries, untyped metrics and timestamps.
pub(super) fn encode(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    // Of one metric, without braces.
    let mut labels = String::new();
    for family in families {
        let (name, metrics) = (family.name(), family.get_metric());
        let kind = match family.get_field_type() {
            MetricType::COUNTER => Kind::Counter,
            MetricType::GAUGE => Kind::Gauge,
            MetricType::HISTOGRAM => Kind::Histogram,
            MetricType::SUMMARY | MetricType::UNTYPED => continue,
        };
        if metrics.is_empty() {
            continue;
        }
        text.push_str("# HELP ");
        text.push_str(name);
        text.push(' ');
        push_escaped(&mut text, family.help(), &['\\', '\n']);
        text.push_str("\n# TYPE ");
        text.push_str(name);
        text.push(' ');
        text.push_str(kind.name());
        text.push('\n');
        for metric in metrics {
            labels.clear();
            push_labels(&mut labels, metric.get_label());
            match kind {
                Kind::Counter => {
                    let value = metric.get_counter().get_value();
                    push_sample(&mut text, name, "", &labels, value);
                }
                Kind::Gauge => {
                    let value = metric.get_gauge().get_value();
                    push_sample(&mut text, name, "", &labels, value);
                }
                Kind::Histogram => push_histogram(&mut text, name, &labels, metric),
            }
        }
    }
    text
}

fn push_histogram(text: &mut String, name: &str, labels: &str, metric: &Metric) {
    let histogram = metric.get_histogram();
    let mut push_bucket = |bound: Option<f64>, up_to: u64| {
        text.push_str(name);
        text.push_str("_bucket{");
        text.push_str(labels);
        text.push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
        match bound {
            Some(bound) => push_number(text, bound),
            None => text.push_str("+Inf"),
        }
        text.push_str("\"} ");
        push_number(text, up_to as f64);
        text.push('\n');
    };
    for bucket in histogram.get_bucket() {
        push_bucket(Some(bucket.upper_bound()), bucket.cumulative_count());
    }
    let count = histogram.get_sample_count();
    push_bucket(None, count);
    push_sample(text, name, "_sum", labels, histogram.get_sample_sum());
    push_sample(text, name, "_count", labels, count as f64);
}

fn push_sample(text: &mut String, name: &str, suffix: &str, labels: &str, value: f64) {
    text.push_str(name);
    text.push_str(suffix);
    if !labels.is_empty() {
        text.push('{');
        text.push_str(labels);
        text.push('}');
    }
    text.push(' ');
    push_number(text, value);
    text.push('\n');
}

fn push_labels(text: &mut String, labels: &[LabelPair]) {
    for label in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(label.name());
        text.push_str("=\"");
        push_escaped(text, label.value(), &['\\', '\n', '"']);
        text.push('"');
    }
}

fn push_escaped(text: &mut String, value: &str, special: &[char]) {
    for part in value.split_inclusive(special) {
        let last = part
            .chars()
            .next_back()
            .filter(|last| special.contains(last));
        let Some(last) = last else {
            text.push_str(part);
            continue;
        };
        text.push_str(part.strip_suffix(last).unwrap_or(part));
        text.push('\\');
        text.push(if last == '\n' { 'n' } else { last });
    }
}

/// Most numbers are whole, and several times as fast to write as such.
fn push_number(text: &mut String, value: f64) {
    let whole = value as u64;
    let written = if whole < EXACT && whole as f64 == value && value.is_sign_positive() {
        write!(text, "{whole}")
    } else {
        write!(text, "{value}")
    };
    // Nothing can go wrong in memory.
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;
    use prometheus::core::Collector as _;
    use prometheus::process_collector::ProcessCollector;
    use prometheus::proto::{Gauge, Metric, MetricFamily, MetricType};
    use proptest::prelude::*;

    use super::encode;
    use crate::export::families;
    use crate::export::fixture::{busy_server, new_server, partial_server};
    use crate::export::proto::label;

    fn gauge(help: &str, labels: &[(&str, &str)], value: f64) -> MetricFamily {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let labels = labels.iter().map(|(name, value)| label(name, value));
        let mut metric = Metric::from_label(labels.collect());
        metric.set_gauge(gauge);
        let mut family = MetricFamily::default();
        family.set_name("gauge".to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(vec![metric]);
        family
    }

    #[track_caller]
    fn is_the_crates(families: &[MetricFamily]) {
        let expected = TextEncoder::new().encode_to_string(families);
        assert_eq!(expected.ok().as_deref(), Some(encode(families).as_str()));
    }

    #[test]
    fn everything_that_is_exported_is_what_the_crate_makes_of_it() {
        for servers in [
            vec![],
            vec![new_server()],
            vec![busy_server(), partial_server()],
        ] {
            let mut all = families(&servers);
            all.extend(ProcessCollector::for_self().collect());
            is_the_crates(&all);
        }
    }

    #[test]
    fn what_has_no_series_is_left_out() {
        let mut family = gauge("", &[], 1.0);
        family.set_metric(Vec::new());
        assert_eq!(encode(&[family]), "");
    }

    #[test]
    fn odd_numbers_are_what_the_crate_makes_of_them() {
        for value in [
            0.0,
            -0.0,
            -1.0,
            0.1,
            9_007_199_254_740_991.0,
            9_007_199_254_740_992.0,
            18_446_744_073_709_551_616.0,
            1e300,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ] {
            is_the_crates(&[gauge("odd", &[], value)]);
        }
    }

    proptest! {
        #[test]
        fn any_text_and_number_is_what_the_crate_makes_of_it(
            help in "[a\\\\\n\"é]{1,8}",
            values in proptest::array::uniform2("[a\\\\\n\"é]{0,8}"),
            value in any::<f64>(),
            whole in any::<u64>(),
        ) {
            let labels = [("one", &*values[0]), ("other", &*values[1])];
            is_the_crates(&[gauge(&help, &labels, value), gauge(&help, &labels[..1], whole as f64)]);
        }
    }
}
