//! The tables of `bench scrape`.

use anyhow::{Result, ensure};
use evictscope_testkit::scrape::count_series;
use serde_json::{Value, json};

use crate::{exporters::Answer, page::Page, report::verdict, spread::Spread};

/// The target for the agent's CPU time for a scrape of the largest fleet, in milliseconds.
const TARGET_MS: f64 = 3.0;
/// How many metric families are shown, those with the most series first.
const FAMILIES: usize = 12;

/// One round.
pub struct Measurement {
    /// The share of a core that the agent takes without scrapes.
    pub agent_busy: f64,
    /// CPU time of the agent for one scrape, in seconds.
    pub agent_cpu: f64,
    /// How long each scrape of it took, in seconds.
    pub agent_seconds: Vec<f64>,
    /// The same of redis_exporter, for one scrape of each server.
    pub exporter_cpu: f64,
    /// How long it took to scrape all servers, in seconds.
    pub exporter_seconds: Vec<f64>,
}

/// The heading above [`Measurement::print`]'s lines.
pub fn print_heading() {
    println!(
        "round  agent without scrapes, % of a core   evictscope, ms of CPU a scrape   \
         redis_exporter, ms of CPU for all servers"
    );
}

impl Measurement {
    /// Prints a line.
    pub fn print(&self, round: u32) {
        println!(
            "{:>5}  {:>37.1}   {:>30.2}   {:>41.2}",
            round + 1,
            self.agent_busy * 1e2,
            self.agent_cpu * 1e3,
            self.exporter_cpu * 1e3
        );
    }

    /// Returns it for the file with all measurements.
    pub fn json(&self, servers: usize, round: u32) -> Value {
        json!({
            "servers": servers,
            "round": round,
            "agent_busy_without_scrapes": self.agent_busy,
            "agent_cpu_seconds_per_scrape": self.agent_cpu,
            "agent_scrape_seconds": self.agent_seconds,
            "redis_exporter_cpu_seconds_for_all_servers": self.exporter_cpu,
            "redis_exporter_seconds_for_all_servers": self.exporter_seconds,
        })
    }
}

/// All measurements with one number of servers.
pub struct Fleet {
    servers: usize,
    page: Page,
    bytes: usize,
    exporter_series: usize,
    exporter_bytes: usize,
    /// By round.
    pub measurements: Vec<Measurement>,
}

impl Fleet {
    /// Begins with these answers of the agent and of redis_exporter.
    ///
    /// # Errors
    ///
    /// Fails where the agent's answer is not about this many servers, or where one of them did not evict.
    pub fn new(servers: usize, agent: &Answer, exporter: &Answer) -> Result<Self> {
        let page = Page::parse(&agent.text()?)?;
        ensure!(
            page.servers() == servers,
            "evictscope watches {} servers instead of {servers}",
            page.servers()
        );
        ensure!(
            page.fewest_evicting_calls() > 0.0,
            "a server made no evicting call: this is not the load that was meant"
        );
        Ok(Self {
            servers,
            page,
            bytes: agent.body.len(),
            exporter_series: count_series(&exporter.text()?),
            exporter_bytes: exporter.body.len(),
            measurements: Vec::new(),
        })
    }

    /// Prints the series in the answers.
    pub fn print_series(&self) {
        let of_a_server = self.page.series_of_a_server();
        println!(
            "\n{}: {} series, {:.0} … {:.0} about each server; {} bytes, compressed",
            self.servers, self.page.series, of_a_server.least, of_a_server.greatest, self.bytes
        );
        println!(
            "redis_exporter: {} series, {} bytes, compressed",
            self.exporter_series, self.exporter_bytes
        );
        // These are the same for any number of servers.
        if self.servers == 1 {
            println!("\nmost series about a server");
            for (family, series) in self.page.largest_families().into_iter().take(FAMILIES) {
                println!("{series:>5.0}  {family}");
            }
            println!();
        }
    }

    /// Prints the figures of all rounds.
    pub fn print(&self) {
        println!(
            "\nmedian [quartiles] (least … greatest) with {}",
            self.name()
        );
        let line = |what: &str, spread: Spread, digits| {
            println!("{what:<58} {}", spread.text(digits));
        };
        let rounds = || self.measurements.iter();
        let ms = |seconds: &f64| seconds * 1e3;
        line(
            "agent without scrapes, % of a core",
            Spread::of(rounds().map(|round| round.agent_busy * 1e2)),
            1,
        );
        line(
            "evictscope, ms until the answer was there",
            Spread::of(rounds().flat_map(|round| round.agent_seconds.iter().map(ms))),
            2,
        );
        line("evictscope, ms of CPU", self.agent_cpu_ms(), 2);
        line(
            "redis_exporter, ms until all answers were there",
            Spread::of(rounds().flat_map(|round| round.exporter_seconds.iter().map(ms))),
            2,
        );
        line(
            "redis_exporter, ms of CPU",
            Spread::of(rounds().map(|round| round.exporter_cpu * 1e3)),
            2,
        );
        line(
            "CPU for a series, evictscope by redis_exporter",
            Spread::of(rounds().map(|round| {
                let ours = round.agent_cpu / self.page.series as f64;
                ours / (round.exporter_cpu / self.exporter_series as f64)
            })),
            3,
        );
    }

    fn name(&self) -> String {
        match self.servers {
            1 => "1 server".to_owned(),
            servers => format!("{servers} servers"),
        }
    }

    fn agent_cpu_ms(&self) -> Spread {
        Spread::of(self.measurements.iter().map(|round| round.agent_cpu * 1e3))
    }
}

/// Prints the target and what was measured of it. A missed target is no failure of the benchmark.
pub fn print_target(fleets: &[Fleet]) {
    println!("\ntarget (median)");
    if let Some(largest) = fleets.last() {
        let cpu = largest.agent_cpu_ms();
        verdict(
            &format!(
                "a scrape of {} servers takes less than {TARGET_MS} ms of agent CPU",
                largest.servers
            ),
            cpu.median < TARGET_MS,
            &format!("{:.2} ms", cpu.median),
        );
    }
}
