//! The format of Google's pprof, which `go tool pprof`, Pyroscope and Grafana read (`profile.proto` in
//! github.com/google/pprof).

use std::collections::HashMap;
use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::folded::INCOMPLETE;
use crate::profile::{Activity, Profile};

/// What ran, as a label of each sample.
const ACTIVITY: &str = "activity";

/// The parts of `profile.proto` that are written, with its names and numbers.
mod proto {
    /// `perftools.profiles.Profile`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
    }

    /// `perftools.profiles.ValueType`: indices of strings.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    /// `perftools.profiles.Sample`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    /// `perftools.profiles.Label`: indices of strings.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
    }

    /// `perftools.profiles.Location`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    /// `perftools.profiles.Line`.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
    }

    /// `perftools.profiles.Function`.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
    }
}

/// Returns the profile as a compressed file: samples and CPU time, each with what ran as the label `activity`. Fails
/// only if compressing in memory fails.
pub fn pprof(profile: &Profile) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message(profile).encode_to_vec())?;
    encoder.finish()
}

/// The strings, each once, with their places; the first one is empty.
struct Strings(HashMap<String, i64>);

impl Strings {
    fn place(&mut self, text: &str) -> i64 {
        let next = number(self.0.len() as u64);
        *self.0.entry(text.to_owned()).or_insert(next)
    }

    /// Returns them in the order of their places.
    fn all(self) -> Vec<String> {
        let mut all = Vec::from_iter(self.0);
        all.sort_unstable_by_key(|(_, place)| *place);
        all.into_iter().map(|(text, _)| text).collect()
    }
}

fn message(profile: &Profile) -> proto::Profile {
    let mut strings = Strings(HashMap::from([(String::new(), 0)]));
    let mut value = |name, unit| proto::ValueType { r#type: strings.place(name), unit: strings.place(unit) };
    let (samples, cpu) = (value("samples", "count"), value("cpu", "nanoseconds"));
    let period = 1_000_000_000 / i64::from(profile.hz.max(1));
    // Numbered from 1. The last stands for functions that are not known.
    let incomplete = profile.functions.len() as u64 + 1;
    let names = profile.functions.iter().map(String::as_str);
    let functions: Vec<proto::Function> = names
        .chain([INCOMPLETE])
        .zip(1..)
        .map(|(name, id)| proto::Function { id, name: strings.place(name) })
        .collect();
    let location = |function: &proto::Function| proto::Location {
        id: function.id,
        line: vec![proto::Line { function_id: function.id }],
    };
    let key = strings.place(ACTIVITY);
    let samples_of = profile.stacks.iter().map(|stack| {
        // The innermost function first, in this format.
        let frames = stack.frames.iter().rev().map(|index| (u64::from(*index) + 1).min(incomplete));
        let count = number(stack.samples);
        proto::Sample {
            location_id: frames.chain((!stack.is_whole).then_some(incomplete)).collect(),
            value: vec![count, count.saturating_mul(period)],
            label: vec![proto::Label { key, str: strings.place(activity(stack.activity)) }],
        }
    });
    let sample = samples_of.collect();
    proto::Profile {
        sample_type: vec![samples, cpu],
        sample,
        location: functions.iter().map(location).collect(),
        function: functions,
        string_table: strings.all(),
        time_nanos: number(profile.began_us.saturating_mul(1_000)),
        duration_nanos: number(profile.length_us.saturating_mul(1_000)),
        period_type: Some(cpu),
        period,
    }
}

fn activity(activity: Activity) -> &'static str {
    match activity {
        Activity::EvictionCall => "eviction_call",
        Activity::ExpireCycle => "expire_cycle",
        Activity::Other => "other",
    }
}

/// Returns a number in the type that the format has for all numbers.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use prost::Message as _;

    use super::{pprof, proto};
    use crate::fixture::stack;
    use crate::profile::Profile;

    #[test]
    fn what_was_written_can_be_read() -> anyhow::Result<()> {
        let profile = Profile {
            began_us: 7,
            length_us: 2_000_000,
            hz: 50,
            functions: ["main", "performEvictions"].map(str::to_owned).to_vec(),
            stacks: vec![stack(&[0, 1], true, 3), stack(&[1], false, 1)],
            ..Profile::default()
        };
        let mut bytes = Vec::new();
        GzDecoder::new(pprof(&profile)?.as_slice()).read_to_end(&mut bytes)?;
        let read = proto::Profile::decode(bytes.as_slice())?;
        let text = |index: i64| read.string_table[index as usize].as_str();
        let stacks = read.sample.iter().map(|sample| {
            let names = sample.location_id.iter().map(|id| {
                let line = read.location[*id as usize - 1].line[0];
                text(read.function[line.function_id as usize - 1].name)
            });
            let label = text(sample.label[0].str);
            format!("{label} {:?} {:?}", Vec::from_iter(names), sample.value)
        });
        let expected = [
            r#"eviction_call ["performEvictions", "main"] [3, 60000000]"#,
            r#"eviction_call ["performEvictions", "[incomplete]"] [1, 20000000]"#,
        ];
        assert_eq!(Vec::from_iter(stacks), expected);
        assert_eq!(read.period, 20_000_000);
        assert_eq!((read.time_nanos, read.duration_nanos), (7_000, 2_000_000_000));
        assert_eq!(text(0), "");
        Ok(())
    }
}
