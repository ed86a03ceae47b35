//! The answer of the one real agent, as the answer of any agent of a fleet.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result};
use regex::{Captures, Regex};

use super::rules::{Families, RECORDED, family};

/// The first name of a server in the fleet, and the first process id.
const FIRST_PORT: usize = 10_000;
const FIRST_PID: usize = 1_000_000;

/// An answer in which the names that differ from host to host are left open.
pub struct Template {
    lines: Vec<Line>,
    /// How many servers it is about.
    servers: usize,
}

/// A line of the answer.
enum Line {
    /// A comment: `# HELP` or `# TYPE`.
    Comment {
        text: String,
        /// Whether its family is one that the rules read.
        read: bool,
    },
    Series(Series),
}

struct Series {
    /// Name and labels.
    labels: Vec<Piece>,
    value: String,
    /// Whether it only grows.
    grows: bool,
    read: bool,
}

/// A part of a name with labels. The numbers are those of a server within its agent.
enum Piece {
    Text(String),
    Port(usize),
    Pid(usize),
    /// Eight digits in front of the digits of a build or of a container.
    Agent,
}

impl Template {
    /// Reads the agent's answer.
    pub fn parse(text: &str, read: &Families) -> Result<Self> {
        let open = Regex::new(r#"\b(server|pid|build_id|container_id|pod_uid)="([^"]*)""#)?;
        let mut servers = BTreeMap::new();
        let mut types = BTreeMap::new();
        let mut lines = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split(' ');
                let (what, name, kind) = (words.next(), words.next(), words.next());
                let name = name.context("a comment names no family")?;
                if what == Some("TYPE") {
                    types.insert(name, kind.unwrap_or_default());
                }
                lines.push(Line::Comment {
                    text: line.to_owned(),
                    read: what == Some("TYPE") && read.contains(name),
                });
                continue;
            }
            let (labels, value) = line.rsplit_once(' ').context("a series has no value")?;
            let name = labels.split('{').next().unwrap_or(labels);
            let kind = types.get(name).or_else(|| types.get(family(name)));
            lines.push(Line::Series(Series {
                labels: pieces(&open, labels, &mut servers),
                value: value.to_owned(),
                grows: matches!(kind, Some(&"counter" | &"histogram")),
                read: read.contains(name),
            }));
        }
        Ok(Self {
            lines,
            servers: servers.len(),
        })
    }

    /// Returns the answer of this agent, of those that are numbered from 0.
    pub fn answer(&self, agent: usize) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Comment { text: comment, .. } => text.push_str(comment),
                Line::Series(series) => {
                    self.write_labels(&mut text, agent, &series.labels);
                    text.push(' ');
                    text.push_str(&series.value);
                }
            }
            text.push('\n');
        }
        text
    }

    /// Returns what the agent would have answered at the last `count` scrapes before the time `now` (since 1970), with
    /// the times of these, as far as the rules read it: counters that have grown from nothing since, and gauges
    /// that have grown by a seventh.
    pub fn past(&self, agent: usize, count: u32, pace: Duration, now: Duration) -> Result<String> {
        let mut heads = Vec::new();
        for line in &self.lines {
            match line {
                Line::Comment { text, read: true } => heads.push((text.clone(), None)),
                Line::Series(series) if series.read => {
                    let mut head = String::new();
                    self.write_labels(&mut head, agent, &series.labels);
                    let value: f64 = series.value.parse().context("a value is no number")?;
                    heads.push((head, Some((value, series.grows))));
                }
                _ => {}
            }
        }
        let mut text = String::new();
        for back in (1..=count).rev() {
            let time = now.saturating_sub(pace * back).as_millis();
            let share = 1.0 - f64::from(back) / f64::from(count);
            for (head, value) in &heads {
                let value = match value {
                    None => {
                        writeln!(text, "{head}")?;
                        continue;
                    }
                    Some((value, true)) if value.fract() == 0.0 => (value * share).floor(),
                    Some((value, true)) => value * share,
                    Some((value, false)) => value * (0.875 + 0.125 * share),
                };
                writeln!(text, "{head} {value} {time}")?;
            }
            for server in 0..self.servers {
                let port = self.port(agent, server);
                for (name, value) in RECORDED {
                    writeln!(text, "{name}{{server=\"{port}\"}} {value} {time}")?;
                }
            }
        }
        Ok(text)
    }

    fn port(&self, agent: usize, server: usize) -> usize {
        FIRST_PORT + agent * self.servers + server
    }

    fn write_labels(&self, text: &mut String, agent: usize, labels: &[Piece]) {
        for piece in labels {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Port(server) => text.push_str(&self.port(agent, *server).to_string()),
                Piece::Pid(server) => {
                    let pid = FIRST_PID + agent * self.servers + server;
                    text.push_str(&pid.to_string());
                }
                Piece::Agent => text.push_str(&format!("{agent:08x}")),
            }
        }
    }
}

/// Leaves open what differs. Servers are numbered as they come.
fn pieces(open: &Regex, text: &str, servers: &mut BTreeMap<String, usize>) -> Vec<Piece> {
    let found: Vec<Captures<'_>> = open.captures_iter(text).collect();
    let server = found.iter().find(|found| &found[1] == "server");
    let server = server.map(|found| {
        let next = servers.len();
        *servers.entry(found[2].to_owned()).or_insert(next)
    });
    let mut pieces = Vec::new();
    let mut end = 0;
    for found in &found {
        let Some(value) = found.get(2) else { continue };
        let piece = match (&found[1], server) {
            ("server", Some(server)) => Piece::Port(server),
            ("pid", Some(server)) => Piece::Pid(server),
            ("build_id" | "container_id" | "pod_uid", _) if value.len() > 8 => Piece::Agent,
            _ => continue,
        };
        pieces.push(Piece::Text(text[end..value.start()].to_owned()));
        end = match piece {
            Piece::Agent => value.start() + 8,
            _ => value.end(),
        };
        pieces.push(piece);
    }
    pieces.push(Piece::Text(text[end..].to_owned()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "\
# HELP evictscope_server_info Which program it is
# TYPE evictscope_server_info gauge
evictscope_server_info{build_id=\"0123456789abcdef\",container_id=\"\",pid=\"41\",server=\"7001\"} 1
evictscope_server_info{build_id=\"0123456789abcdef\",container_id=\"\",pid=\"42\",server=\"7002\"} 1
# TYPE evictscope_eviction_calls_total counter
evictscope_eviction_calls_total{kind=\"evicting\",server=\"7001\"} 101
evictscope_eviction_calls_total{kind=\"evicting\",server=\"7002\"} 10
# TYPE evictscope_burst_duration_seconds histogram
evictscope_burst_duration_seconds_sum{server=\"7001\"} 2.5
# TYPE evictscope_used_memory_bytes gauge
evictscope_used_memory_bytes{server=\"7001\"} 1000
# TYPE process_threads gauge
process_threads 3
";
    const RULES: &str = "rate(evictscope_eviction_calls_total[1h]) and evictscope_used_memory_bytes \
                         or increase(evictscope_burst_duration_seconds_count[1h])";

    fn template() -> Result<Template> {
        Template::parse(ANSWER, &Families::of_rules(RULES)?)
    }

    #[test]
    fn each_agent_has_names_of_its_own() -> Result<()> {
        let first = template()?.answer(0);
        let second = template()?.answer(1);
        assert!(first.contains(
            "evictscope_server_info{build_id=\"0000000089abcdef\",container_id=\"\",\
             pid=\"1000001\",server=\"10001\"} 1\n"
        ));
        assert!(second.contains(
            "evictscope_server_info{build_id=\"0000000189abcdef\",container_id=\"\",\
             pid=\"1000002\",server=\"10002\"} 1\n"
        ));
        assert!(second.contains("{kind=\"evicting\",server=\"10003\"} 10\n"));
        // What names no host is as the agent gave it.
        for answer in [&first, &second] {
            assert_eq!(answer.lines().count(), ANSWER.lines().count());
            assert!(answer.ends_with("# TYPE process_threads gauge\nprocess_threads 3\n"));
        }
        Ok(())
    }

    #[test]
    fn the_past_leads_to_the_present() -> Result<()> {
        let (pace, now) = (Duration::from_secs(15), Duration::from_secs(1000));
        let past = template()?.past(0, 2, pace, now)?;
        let of = |head: &str| -> Vec<&str> {
            let lines = past.lines().filter_map(|line| line.strip_prefix(head));
            lines.collect()
        };
        let calls = of("evictscope_eviction_calls_total{kind=\"evicting\",server=\"10000\"} ");
        assert_eq!(calls, ["0 970000", "50 985000"]);
        let sums = of("evictscope_burst_duration_seconds_sum{server=\"10000\"} ");
        assert_eq!(sums, ["0 970000", "1.25 985000"]);
        let gauge = of("evictscope_used_memory_bytes{server=\"10000\"} ");
        assert_eq!(gauge, ["875 970000", "937.5 985000"]);
        let recorded = of("server:evictscope_memory_saturation:ratio{server=\"10001\"} ");
        assert_eq!(recorded, ["0.5 970000", "0.5 985000"]);
        assert!(!past.contains("server_info") && !past.contains("process_threads"));
        Ok(())
    }
}
