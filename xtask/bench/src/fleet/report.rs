//! The tables of `bench fleet`, and how many servers it comes to.

use anyhow::Result;
use evictscope_testkit::{
    prometheus::Prometheus,
    text::{self, percent},
};
use serde_json::{Value, json};

use super::measure::{MEMORY, Measured};
use crate::spread::Spread;

/// The parts of the whole at which a Prometheus is taken to be full: a restart reads its log at several times the pace,
/// and a query of a dashboard wants some too.
mod full {
    /// Of the interval of a group of rules.
    pub const RULES: f64 = 0.5;
    /// Of the machine's memory.
    pub const MEMORY: f64 = 0.5;
    /// Of the machine's CPUs.
    pub const CPU: f64 = 0.5;
    /// Of the scrapes that were due, those that were not made: the first sign of overload.
    pub const SCRAPES_MISSED: f64 = 0.01;
}

/// How many rules are shown, the slowest first.
const RULES: usize = 6;

/// The measurements with one number of agents.
pub struct Step {
    agents: usize,
    servers: usize,
    measured: Measured,
}

/// What can be full, with the part that is used by a step and the part at which it is taken to be full.
struct Resource {
    name: String,
    used: f64,
    full: f64,
}

impl Step {
    /// Returns them.
    pub fn new(agents: usize, servers: usize, measured: Measured) -> Self {
        Self {
            agents,
            servers,
            measured,
        }
    }

    /// Returns how many agents there were.
    pub fn agents(&self) -> usize {
        self.agents
    }

    /// Prints them.
    pub fn print(&self) {
        let of = &self.measured;
        println!(
            "{} agents, {} servers: {} series, {:.0} samples/s",
            self.agents, self.servers, of.series, of.samples
        );
        println!(
            "  CPU {:.3} s/s (besides: simulated targets {:.3}, the real agent {:.3}); memory {}, of which heap {}",
            of.cpu[0],
            of.cpu[1],
            of.cpu[2],
            text::bytes(of.memory as u64),
            text::bytes(of.heap as u64),
        );
        println!(
            "  scrapes {} ms, median [quartiles] (least … greatest); {:.2} % missed, {} failed",
            in_ms(of.scrapes).text(1),
            of.scrapes_missed * 1e2,
            of.scrapes_failed
        );
        for (name, group) in &of.groups {
            println!(
                "  {name:<24} {} ms in {} s: {:.1} %",
                in_ms(group.seconds).text(1),
                group.interval,
                group.share() * 1e2
            );
        }
        println!(
            "  {} evaluations missed, {} alerts fire; slowest rules, ms:",
            of.evaluations_missed, of.firing
        );
        for (rule, seconds) in of.rules.iter().take(RULES) {
            println!("    {:>8.1}  {rule}", seconds * 1e3);
        }
    }

    /// Returns them for the file with all measurements.
    pub fn json(&self, version: &str, native: bool) -> Value {
        let of = &self.measured;
        let groups = of.groups.iter().map(|(name, group)| {
            let seconds = group.seconds;
            let spread = [seconds.least, seconds.median, seconds.greatest];
            (name.clone(), json!(spread))
        });
        json!({
            "prometheus": version,
            "native_histograms": native,
            "agents": self.agents,
            "servers": self.servers,
            "series": of.series,
            "samples_per_second": of.samples,
            "cpu": of.cpu,
            "memory_bytes": of.memory,
            "heap_bytes": of.heap,
            "scrape_seconds": [of.scrapes.least, of.scrapes.median, of.scrapes.greatest],
            "scrapes_missed_share": of.scrapes_missed,
            "scrapes_failed": of.scrapes_failed,
            "evaluations_missed": of.evaluations_missed,
            "alerts_firing": of.firing,
            "group_seconds": groups.collect::<serde_json::Map<_, _>>(),
            "rule_seconds": of.rules,
        })
    }

    fn resources(&self) -> Vec<Resource> {
        let of = &self.measured;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let memory = machine_memory();
        let mut resources = vec![
            Resource {
                name: format!("CPU, {} of {cores} cores", percent(full::CPU)),
                used: of.cpu[0] / cores,
                full: full::CPU,
            },
            Resource {
                name: format!(
                    "memory, {} of {}",
                    percent(full::MEMORY),
                    text::bytes(memory as u64)
                ),
                used: of.memory / memory,
                full: full::MEMORY,
            },
        ];
        resources.extend(of.groups.iter().map(|(name, group)| Resource {
            name: format!(
                "rules of {name}, {} of {} s",
                percent(full::RULES),
                group.interval
            ),
            used: group.share(),
            full: full::RULES,
        }));
        resources
    }

    /// Returns what Prometheus did not do in time, if anything.
    fn overload(&self) -> Option<&'static str> {
        let of = &self.measured;
        if of.scrapes_missed > full::SCRAPES_MISSED {
            Some("Prometheus missed scrapes")
        } else if of.scrapes_failed > 0 {
            Some("scrapes failed or took too long")
        } else if of.evaluations_missed > 0.0 {
            Some("Prometheus missed evaluations")
        } else {
            None
        }
    }

    /// Returns what is full, if anything is.
    pub fn limit(&self) -> Option<String> {
        if let Some(overload) = self.overload() {
            return Some(overload.to_owned());
        }
        let mut resources = self.resources().into_iter();
        let found = resources.find(|resource| resource.used >= resource.full)?;
        Some(format!("full: {}", found.name))
    }
}

/// Returns that memory is full, if it is. It is asked while targets are added too, so that no other program of the
/// machine has to end for want of memory.
pub fn memory_limit(prometheus: &Prometheus) -> Result<Option<String>> {
    let used = prometheus.metrics()?.sum(MEMORY, &[])?;
    Ok((used >= full::MEMORY * machine_memory()).then(|| "full: memory".to_owned()))
}

/// Returns the memory of this machine, in bytes.
fn machine_memory() -> f64 {
    let system = rustix::system::sysinfo();
    system.totalram as f64 * f64::from(system.mem_unit)
}

fn in_ms(seconds: Spread) -> Spread {
    seconds.map(|value| value * 1e3)
}

/// Prints all steps in one table.
pub fn print_table(steps: &[Step]) {
    println!(
        "\n| agents | servers | series | samples/s | CPU s/s | memory | of which heap | scrape, median | slowest group, of its interval |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for step in steps {
        let of = &step.measured;
        let slowest = (of.groups.iter()).max_by(|a, b| a.1.share().total_cmp(&b.1.share()));
        println!(
            "| {} | {} | {} | {:.0} | {:.2} | {} | {} | {:.1} ms | {} |",
            step.agents,
            step.servers,
            of.series,
            of.samples,
            of.cpu[0],
            text::bytes(of.memory as u64),
            text::bytes(of.heap as u64),
            of.scrapes.median * 1e3,
            slowest.map_or_else(String::new, |(name, group)| format!(
                "{:.0} ms, {:.1} % ({name})",
                group.seconds.median * 1e3,
                group.share() * 1e2
            )),
        );
    }
}

/// Prints at how many servers each resource would be full: on the line from the first step to the last. Where the last
/// was too much already, a line says nothing.
pub fn print_capacity(steps: &[Step]) {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return;
    };
    if let Some(overload) = last.overload() {
        println!("\n{} servers are too many: {overload}", last.servers);
        return;
    }
    println!("\nservers until it is full");
    let most = last.servers as f64;
    let mut capacities: Vec<(f64, String)> = first
        .resources()
        .into_iter()
        .zip(last.resources())
        .map(|(first_used, last_used)| {
            let servers = reaches(
                (first.servers as f64, first_used.used),
                (most, last_used.used),
                last_used.full,
            );
            (servers, last_used.name)
        })
        .collect();
    capacities.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (servers, name) in &capacities {
        let how = match *servers <= most {
            true => "measured",
            false => "extrapolated",
        };
        println!("{servers:>9.0}  {how:<12}  {name}");
    }
}

/// Returns where the line through two points reaches a height. With one point, it is the line from nothing.
fn reaches((x1, y1): (f64, f64), (x2, y2): (f64, f64), height: f64) -> f64 {
    match x1 < x2 && y1 < y2 {
        true => x2 + (height - y2) * (x2 - x1) / (y2 - y1),
        false => x2 * height / y2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reaches_a_height() {
        assert_eq!(reaches((100.0, 0.25), (200.0, 0.5), 0.75), 300.0);
        assert_eq!(reaches((100.0, 0.25), (100.0, 0.25), 0.75), 300.0);
        // What does not grow says nothing about growth.
        assert_eq!(reaches((100.0, 0.5), (200.0, 0.25), 0.75), 600.0);
    }
}
