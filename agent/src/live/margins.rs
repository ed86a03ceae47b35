//! Describes what would happen to a server at its limit, in one line.

use std::time::Duration;

use evictscope_records::text::{round, share};

use super::reading::*;

/// Returns when memory will be at its limit if it keeps growing, and what share of the thread evictions would take then. Returns
/// `None` if it does not grow.
pub fn line(reading: &ServerReading) -> Option<String> {
    let time = |metric| {
        let time = Duration::try_from_secs_f64(reading.get(metric)?);
        time.ok().map(round)
    };
    let likely = time(LIMIT_LIKELY)?;
    let [earliest, latest] = [LIMIT_EARLIEST, LIMIT_LATEST].map(time);
    let never = || "never".to_owned();
    let mut line = format!(
        " maxmemory in {likely} ({} to {})",
        earliest.unwrap_or_else(never),
        latest.unwrap_or_else(never)
    );
    if let Some((measured, added)) = reading.by(EVICTIONS_WOULD_ADD, "measured").next() {
        let of = match measured {
            "lab" => "(lab's costs)",
            _ => "of the thread",
        };
        line += &format!("; evictions would add {} {of}", share(added));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::line;
    use crate::live::reading::{tests::server, *};

    #[test]
    fn the_line_fits_and_is_there_only_where_memory_grows() {
        let growing = [(LIMIT_EARLIEST, 172_900.0), (LIMIT_LIKELY, 259_300.0)];
        assert_eq!(line(&server(&growing[..1])), None);
        assert_eq!(
            line(&server(&growing)).as_deref(),
            Some(" maxmemory in 3 days (2 days to never)")
        );
        const HERE: Metric = (EVICTIONS_WOULD_ADD, &[("measured", "here")]);
        const LAB: Metric = (EVICTIONS_WOULD_ADD, &[("measured", "lab")]);
        for (added, of) in [(HERE, "of the thread"), (LAB, "(lab's costs)")] {
            let known = [&growing[..], &[(added, 0.4512)]].concat();
            let longest = line(&server(&known)).unwrap_or_default();
            let expected =
                format!(" maxmemory in 3 days (2 days to never); evictions would add 45.1 % {of}");
            assert_eq!(longest, expected);
            assert!(longest.chars().count() <= 80);
        }
    }
}
