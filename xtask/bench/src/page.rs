//! The series in the agent's answer.

use std::collections::BTreeMap;

use anyhow::Result;
use evictscope_testkit::scrape::{Scrape, SeriesByServer, count_series};

use crate::spread::Spread;

/// The series of one answer.
pub struct Page {
    /// The number of all series, those that are about no server included.
    pub series: usize,
    by_server: SeriesByServer,
    scrape: Scrape,
}

impl Page {
    /// Reads an answer.
    pub fn parse(text: &str) -> Result<Self> {
        let scrape = Scrape::parse(text)?;
        Ok(Self {
            series: count_series(text),
            by_server: scrape.series_by_server(),
            scrape,
        })
    }

    /// Returns how many servers have series.
    pub fn servers(&self) -> usize {
        self.by_server.len()
    }

    /// Returns how many series each server has.
    pub fn series_of_a_server(&self) -> Spread {
        let servers = self.by_server.values();
        Spread::of(servers.map(|families| families.values().sum::<usize>() as f64))
    }

    /// Returns the families with the most series about servers, and how many each server has of them.
    pub fn largest_families(&self) -> Vec<(&str, f64)> {
        let mut families = BTreeMap::new();
        for (family, series) in self.by_server.values().flatten() {
            *families.entry(family.as_str()).or_insert(0.0) += *series as f64;
        }
        let servers = self.servers() as f64;
        let mean = |(family, series): (_, f64)| (family, series / servers);
        let mut families: Vec<(&str, f64)> = families.into_iter().map(mean).collect();
        families.sort_by(|one, other| other.1.total_cmp(&one.1));
        families
    }

    /// Returns the evicting calls of the server that made the fewest.
    pub fn fewest_evicting_calls(&self) -> f64 {
        let calls = |server: &String| {
            let labels = [("server", server.as_str()), ("kind", "evicting")];
            let calls = self.scrape.sum("evictscope_eviction_calls_total", &labels);
            calls.unwrap_or(0.0)
        };
        let fewest = self.by_server.keys().map(calls).reduce(f64::min);
        fewest.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_counted_by_server_and_family() -> Result<()> {
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
        )?;
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
        assert_eq!(Page::parse("")?.fewest_evicting_calls(), 0.0);
        Ok(())
    }
}
