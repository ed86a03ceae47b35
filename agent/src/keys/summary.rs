//! What was drawn, in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sampler::{Drawn, DrawnKey};

/// The limits of idle time that are shown, in seconds.
const LIMITS: [u64; 6] = [600, 3_600, 8 * 3_600, 86_400, 7 * 86_400, 30 * 86_400];
/// Standard errors on each side of an estimate, for 95 of 100 samples.
const ERRORS: f64 = 1.96;

/// What a server notes of the use of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyUse {
    /// When they were last used, for as many seconds as it has run.
    Used(u64),
    /// The same of when they were last written.
    Written(u64),
    /// How often they are used.
    Counter,
    /// That is not known, for this reason.
    Unknown(&'static str),
}

impl KeyUse {
    /// Returns the longest idle time that is certain, in seconds; `None` if none is.
    fn longest(self) -> Option<u64> {
        match self {
            Self::Used(longest) | Self::Written(longest) => Some(longest),
            Self::Counter | Self::Unknown(_) => None,
        }
    }
}

/// What fills a cache.
#[derive(Debug, Serialize)]
pub struct KeysSummary {
    /// The server's keys at the beginning and at the end.
    pub keys: [u64; 2],
    /// Keys that were looked at.
    pub sampled: usize,
    /// Whether that was each key, so that nothing is estimated.
    pub is_whole: bool,
    /// Share of what was drawn that was inconsistent, and so was left out.
    pub rejected_share: f64,
    pub bytes: f64,
    /// Half the width of the interval that holds this in 95 of 100 samples.
    pub bytes_error: f64,
    /// How long the drawing took, in seconds.
    pub seconds: f64,
    /// By type and encoding, or by what was asked for, the largest first.
    pub rows: Vec<KeysRow>,
    /// What the server notes of the use of its keys.
    pub noted: KeyUse,
    /// Idle times, in seconds, and the share of bytes in keys that were not used, or written, for that long.
    pub idle_limits: Vec<(u64, f64)>,
    /// The share of bytes in keys whose idle time is not known.
    pub idle_unknown: Option<f64>,
}

/// Keys that have something in common.
#[derive(Debug, Serialize)]
pub struct KeysRow {
    pub name: String,
    pub keys: f64,
    pub bytes: f64,
    /// Their share of all bytes.
    pub share: f64,
    /// Half the width of that share's interval.
    pub share_error: f64,
    /// Seconds within which a tenth, half and nine tenths of them were used, or written, as far as that is certain.
    pub idle: Option<[Option<f64>; 3]>,
    /// The same for their counters.
    pub counter: Option<[f64; 3]>,
    /// The same for their times to live, in seconds, if they expire.
    pub ttl: Option<[f64; 3]>,
    /// Share that never expires.
    pub without_ttl: f64,
}

impl KeysSummary {
    /// Summarises what was drawn of a server that notes this of the use of its keys.
    pub fn of(drawn: &Drawn, noted: KeyUse) -> Self {
        let longest = noted.longest();
        let sampled = drawn.keys.len();
        let sum = drawn.keys.iter().map(|key| key.bytes).sum::<u64>() as f64;
        let scale = match (drawn.is_whole, sampled) {
            (_, 0) => 0.0,
            (true, _) => 1.0,
            (false, _) => drawn.all[1] as f64 / sampled as f64,
        };
        // How far a sample is off: 0 if it is whole.
        let error = |squares: f64| {
            if drawn.is_whole { 0.0 } else { ERRORS * squares.sqrt() }
        };
        let mean = sum / sampled.max(1) as f64;
        let squares: f64 = drawn.keys.iter().map(|key| (key.bytes as f64 - mean).powi(2)).sum();
        let mut groups = BTreeMap::<String, Vec<&DrawnKey>>::new();
        for key in &drawn.keys {
            let (kind, encoding) = key.kind;
            groups.entry(key.group.clone().unwrap_or_else(|| format!("{kind} {encoding}"))).or_default().push(key);
        }
        let row = |(name, keys): (String, Vec<&DrawnKey>)| {
            let bytes: f64 = keys.iter().map(|key| key.bytes as f64).sum();
            let share = bytes / sum.max(1.0);
            let row_squares: f64 = keys.iter().map(|key| (key.bytes as f64).powi(2)).sum();
            // The error of a ratio of sums: its members' deviations from it.
            let deviations = row_squares * (1.0 - 2.0 * share) + share * share * (squares + mean * sum);
            let of = |value: fn(&DrawnKey) -> f64| quantiles(keys.iter().map(|key| value(key)).collect());
            KeysRow {
                name,
                keys: keys.len() as f64 * scale,
                bytes: bytes * scale,
                share,
                share_error: error(deviations.max(0.0)) / sum.max(1.0),
                idle: longest.and_then(|_| {
                    let idle = of(|key| key.idle.map_or(f64::INFINITY, |idle| idle as f64))?;
                    Some(idle.map(|idle| Some(idle).filter(|idle| idle.is_finite())))
                }),
                counter: (noted == KeyUse::Counter).then(|| of(|key| key.counter.into())).flatten(),
                ttl: quantiles(keys.iter().filter_map(|key| key.ttl).collect()),
                without_ttl: keys.iter().filter(|key| key.ttl.is_none()).count() as f64 / keys.len() as f64,
            }
        };
        let mut rows: Vec<KeysRow> = groups.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
        let share = |is: &dyn Fn(Option<u64>) -> bool| {
            drawn.keys.iter().filter(|key| is(key.idle)).map(|key| key.bytes).sum::<u64>() as f64 / sum.max(1.0)
        };
        let older = |limit| share(&|idle| idle.is_some_and(|idle| idle >= limit));
        let limits = longest.map(|longest| {
            LIMITS.into_iter().filter(|limit| *limit <= longest).map(|limit| (limit, older(limit))).collect()
        });
        Self {
            keys: drawn.all,
            sampled,
            is_whole: drawn.is_whole,
            rejected_share: drawn.rejected as f64 / (drawn.rejected as f64 + sampled as f64).max(1.0),
            bytes: sum * scale,
            bytes_error: error(squares) * scale,
            seconds: drawn.seconds,
            rows,
            noted,
            idle_limits: limits.unwrap_or_default(),
            idle_unknown: longest.map(|_| share(&|idle| idle.is_none())),
        }
    }
}

/// Returns the values that a tenth, half and nine tenths of all values do not exceed.
fn quantiles(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)? as f64;
    Some([0.1, 0.5, 0.9].map(|share| values[(last * share).round() as usize]))
}

#[cfg(test)]
mod tests {
    use super::{Drawn, DrawnKey, KeyUse, KeysSummary};

    fn drawn(is_whole: bool) -> Drawn {
        let key = |index: u64| DrawnKey {
            kind: if index < 75 { ("string", "raw") } else { ("hash", "listpack") },
            group: None,
            bytes: if index < 75 { 100 } else { 300 },
            // The server has run for no longer.
            idle: Some(index * 100).filter(|idle| *idle <= 5_000),
            counter: index as u8,
            ttl: (index < 25).then_some(index as f64),
        };
        Drawn { keys: (0..100).map(key).collect(), rejected: 100, all: [1_900, 2_000], is_whole, seconds: 1.0 }
    }

    #[test]
    fn a_sample_stands_for_all() {
        let summary = KeysSummary::of(&drawn(false), KeyUse::Used(5_000));
        assert_eq!(summary.bytes, 300_000.0);
        assert_eq!(summary.rejected_share, 0.5);
        // 100 draws with a standard deviation of 86.6 bytes.
        assert!((summary.bytes_error - 1.96 * 86.6 * 10.0 * 20.0).abs() < 100.0, "{}", summary.bytes_error);
        let [hash, string] = &summary.rows[..] else { panic!("{:?}", summary.rows) };
        assert_eq!((hash.name.as_str(), hash.keys, hash.bytes, hash.share), ("hash listpack", 500.0, 150_000.0, 0.5));
        assert_eq!(string.idle, Some([Some(700.0), Some(3_700.0), None]));
        assert_eq!((string.ttl, hash.ttl), (Some([2.0, 12.0, 22.0]), None));
        assert_eq!((string.without_ttl, string.counter), (2.0 / 3.0, None));
        // Each of 25 is 150 off, each of 75 is 50 off: sqrt(25 * 150^2 + 75 * 50^2) = 866 of 15,000 bytes.
        assert!((hash.share_error - 1.96 * 866.0 / 15_000.0).abs() < 1e-4, "{}", hash.share_error);
        assert_eq!(hash.share_error, string.share_error);
        assert_eq!(summary.idle_limits, [(600, 4_500.0 / 15_000.0), (3_600, 1_500.0 / 15_000.0)]);
        assert_eq!(summary.idle_unknown, Some(9_900.0 / 15_000.0));
    }

    #[test]
    fn what_is_whole_has_no_error_and_counters_are_no_idle_times() {
        let summary = KeysSummary::of(&drawn(true), KeyUse::Counter);
        assert_eq!((summary.bytes, summary.bytes_error), (15_000.0, 0.0));
        assert_eq!(summary.rows[0].counter, Some([77.0, 87.0, 97.0]));
        assert!(summary.rows[0].idle.is_none() && summary.idle_limits.is_empty());
        let empty = KeysSummary::of(&Drawn::default(), KeyUse::Unknown("a reason"));
        assert!(empty.rows.is_empty() && empty.bytes == 0.0);
    }
}
