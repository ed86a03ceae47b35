//! What the agent says of expiry, beside the server's own numbers.
//!
//! Nothing expires between the two: active expiry is off, and no client asks for a key.

use anyhow::{Context as _, Result};
use evictscope_testkit::{histogram::Histogram, scrape::Scrape};

use crate::expiry::Expiry;

/// All keys that expired, by the server's own counter.
pub const EXPIRED_KEYS: &str = "evictscope_expired_keys_total";
const LIMIT_HITS: &str = "evictscope_expire_cycle_time_limit_hits_total";
const CYCLES_EXPIRED: &str = "evictscope_expire_cycle_keys_expired_total";
const STALE_RATIO: &str = "evictscope_expire_stale_ratio";
const DURATION: &str = "evictscope_expire_cycle_duration_seconds";

/// `INFO` prints the stale ratio as a percentage with two digits after the point: half of the last one.
const PRINTED: f64 = 0.000_051;

/// Compares a reading that was taken after the SCAN with the record. Returns a table, and the values that differ.
///
/// # Errors
///
/// Fails where a metric is missing that every version of the server has.
pub fn compare(expiry: &Expiry, reading: &Scrape) -> Result<(String, Vec<String>)> {
    let mut text = format!("{:<48}{:>16}{:>16}\n", "expiry", "record", "evictscope");
    let mut differences = Vec::new();
    let mut add = |name: &str, record: f64, agent: Option<f64>, near: f64| {
        let rounded = |value: f64| ((value * 1e6).round() / 1e6).to_string();
        let value = agent.map_or("not exported".to_owned(), rounded);
        let record_value = rounded(record);
        text += &format!("{name:<48}{record_value:>16}{value:>16}\n");
        if agent.is_some_and(|agent| (agent - record).abs() > near) {
            differences.push(format!("{name} is {value}, by the record {record_value}"));
        }
    };
    let after = &expiry.after.sample;
    let exported = |name| {
        let value = reading.sum(name, &[]);
        value.map(Some).context("a server whose keys expire")
    };
    let count = |count: u64| count as f64;
    add(
        EXPIRED_KEYS,
        count(after.expired_keys),
        exported(EXPIRED_KEYS)?,
        0.0,
    );
    add(
        LIMIT_HITS,
        count(after.time_limit_hits),
        exported(LIMIT_HITS)?,
        0.0,
    );
    add(
        STALE_RATIO,
        after.stale_ratio,
        exported(STALE_RATIO)?,
        PRINTED,
    );
    // The load asks for keys that are younger than any time to live: cycles alone delete what expires under load.
    let by_cycles = reading.sum(CYCLES_EXPIRED, &[]).ok();
    add(CYCLES_EXPIRED, count(expiry.expired_keys()), by_cycles, 0.0);
    Ok((text, differences))
}

/// Returns the durations of the slow cycles, where the agent exports them.
pub fn slow_cycles(reading: &Scrape) -> Option<Histogram> {
    reading.histogram(DURATION, &[("type", "slow")]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{expiry::Moment, sample::Sample};

    const PAGE: &str = "\
# TYPE evictscope_expired_keys_total counter
evictscope_expired_keys_total{server=\"7001\"} 150
# TYPE evictscope_expire_cycle_time_limit_hits_total counter
evictscope_expire_cycle_time_limit_hits_total{server=\"7001\"} 12
# TYPE evictscope_expire_stale_ratio gauge
evictscope_expire_stale_ratio{server=\"7001\"} 0.12344
";
    const OF_CYCLES: &str = "\
# TYPE evictscope_expire_cycle_keys_expired_total counter
evictscope_expire_cycle_keys_expired_total{server=\"7001\",type=\"slow\"} 60
evictscope_expire_cycle_keys_expired_total{server=\"7001\",type=\"fast\"} 10
";

    fn record() -> Expiry {
        let moment = |expired_keys| Moment {
            sample: Sample {
                expired_keys,
                time_limit_hits: 12,
                stale_ratio: 0.1234,
                ..Sample::default()
            },
            ..Moment::default()
        };
        Expiry {
            begin: moment(20),
            before: moment(90),
            after: moment(150),
            scan_seconds: 1.0,
        }
    }

    fn differences(page: &str) -> Result<Vec<String>> {
        Ok(compare(&record(), &Scrape::parse(page)?)?.1)
    }

    #[test]
    fn the_same_numbers_agree() -> Result<()> {
        assert_eq!(differences(&format!("{PAGE}{OF_CYCLES}"))?, [""; 0]);
        // Cycles may not tell how many keys they expired.
        assert_eq!(differences(PAGE)?, [""; 0]);
        Ok(())
    }

    #[test]
    fn each_number_is_compared() -> Result<()> {
        let page = format!("{PAGE}{OF_CYCLES}");
        for (from, to) in [
            ("} 150", "} 151"),
            ("} 12\n", "} 11\n"),
            ("0.12344", "0.1235"),
            ("} 60", "} 61"),
        ] {
            let changed = page.replace(from, to);
            assert_eq!(differences(&changed)?.len(), 1, "{to}");
        }
        Ok(())
    }

    #[test]
    fn a_missing_metric_is_an_error() {
        let page = PAGE.replace(STALE_RATIO, "other");
        assert!(differences(&page).is_err());
    }
}
