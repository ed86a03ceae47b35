//! What stands in the answer of an exporter, in Prometheus's text format.

use std::collections::BTreeMap;

use super::spread::Spread;

/// The series of one answer.
#[derive(Default)]
pub struct Page {
    /// All of them. A histogram has one for each bucket, one for the sum and one for the count.
    pub series: usize,
    /// Those of each server that is named.
    by_server: BTreeMap<String, usize>,
    /// Those that are about some server, by metric family.
    by_family: BTreeMap<String, usize>,
    /// Evicting calls of each server, by the counters of the agent.
    evicting_calls: BTreeMap<String, f64>,
}

impl Page {
    /// Counts.
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut family = "";
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                family = kind.split(' ').next().unwrap_or_default();
            } else if !line.is_empty() && !line.starts_with('#') {
                page.take_in(line, family);
            }
        }
        page
    }

    fn take_in(&mut self, line: &str, family: &str) {
        self.series += 1;
        let Some(server) = label(line, "server") else {
            return;
        };
        *self.by_server.entry(server.to_owned()).or_default() += 1;
        *self.by_family.entry(family.to_owned()).or_default() += 1;
        let value: Option<f64> = line.rsplit(' ').next().and_then(|value| value.parse().ok());
        if family == "evictscope_eviction_calls_total"
            && label(line, "kind") == Some("evicting")
            && let Some(calls) = value
        {
            *(self.evicting_calls.entry(server.to_owned())).or_insert(0.0) += calls;
        }
    }

    /// How many servers have series.
    pub fn servers(&self) -> usize {
        self.by_server.len()
    }

    /// How many series a server has.
    pub fn series_of_a_server(&self) -> Spread {
        Spread::of(self.by_server.values().map(|series| *series as f64))
    }

    /// The families with the most series about servers, and how many each server has of them.
    pub fn largest_families(&self) -> Vec<(&str, f64)> {
        let servers = self.servers() as f64;
        let mut families: Vec<(&str, f64)> = (self.by_family.iter())
            .map(|(family, series)| (family.as_str(), *series as f64 / servers))
            .collect();
        families.sort_by(|one, other| other.1.total_cmp(&one.1));
        families
    }

    /// The evicting calls of the server that made the fewest.
    pub fn fewest_evicting_calls(&self) -> f64 {
        let calls = self.evicting_calls.values().copied();
        calls.reduce(f64::min).unwrap_or(0.0)
    }
}

/// The value of a label; servers here are named by their ports, which need no escapes.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_counted_by_server_and_family() {
        let page = Page::parse(
            "# HELP evictscope_eviction_calls_total Eviction calls\n\
             # TYPE evictscope_eviction_calls_total counter\n\
             evictscope_eviction_calls_total{server=\"7001\",kind=\"evicting\",result=\"ok\"} 90\n\
             evictscope_eviction_calls_total{server=\"7001\",kind=\"evicting\",result=\"fail\"} 1\n\
             evictscope_eviction_calls_total{server=\"7001\",kind=\"noop\",result=\"ok\"} 5\n\
             evictscope_eviction_calls_total{server=\"7002\",kind=\"evicting\",result=\"ok\"} 40\n\
             # TYPE evictscope_mem_tofree_bytes histogram\n\
             evictscope_mem_tofree_bytes_bucket{server=\"7001\",le=\"+Inf\"} 0\n\
             evictscope_mem_tofree_bytes_sum{server=\"7001\"} 0\n\
             # TYPE process_threads gauge\n\
             process_threads 3\n",
        );
        assert_eq!((page.series, page.servers()), (7, 2));
        let series = page.series_of_a_server();
        assert_eq!((series.least, series.greatest), (1.0, 5.0));
        assert_eq!(
            page.largest_families(),
            [
                ("evictscope_eviction_calls_total", 2.0),
                ("evictscope_mem_tofree_bytes", 1.0)
            ]
        );
        assert_eq!(page.fewest_evicting_calls(), 40.0);
        assert_eq!(Page::parse("").fewest_evicting_calls(), 0.0);
    }
}
