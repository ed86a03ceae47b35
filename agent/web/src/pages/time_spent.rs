//! Where the main thread's time went: evictions, expiry, commands by name, no CPU, asleep.

use std::collections::BTreeMap;
use std::time::Duration;

use evictscope_telemetry::{CommandSpan, Moment, calls_others, commands_in, microseconds};
use maud::{Markup, html};

use super::text::{UNKNOWN, head, or_unknown, percent};

/// How many commands are named of each time.
const NAMED: usize = 6;
/// A smaller share is not shown of a command, unless it has a larger one in the other time.
const LEAST: f64 = 0.001;

/// A time, with what was read in it.
pub struct Period<'a> {
    /// What it is called, at the head of a column.
    pub title: &'a str,
    /// Its moments.
    pub moments: &'a [Moment],
}

/// The shares of a time; `None` for what is not known.
#[derive(Debug, Default, PartialEq)]
struct Shares {
    evictions: Option<f64>,
    expiry: Option<f64>,
    /// By name; without one, those that are not named.
    commands: BTreeMap<String, f64>,
    other: Option<f64>,
    asleep: Option<f64>,
    /// Part of all of these but the sleep: they are measured from their beginnings to their ends.
    no_cpu: Option<f64>,
}

impl Shares {
    fn of(moments: &[Moment], spans: &[CommandSpan]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        let length_us = last.unix_us().checked_sub(first.unix_us()).filter(|us| *us > 0)?;
        let share = |us: u64| us as f64 / length_us as f64;
        let grown = |of: fn(&Moment) -> Option<Duration>| {
            Some(share(microseconds(of(last)?).saturating_sub(microseconds(of(first)?))))
        };
        let evictions = grown(|moment| Some(moment.evicting));
        let expiry = grown(|moment| moment.expiring);
        let (cpu, no_cpu) = (grown(|moment| moment.cpu), grown(|moment| moment.waiting));
        let within = spans.iter().filter(|span| {
            let middle = span.from_us.midpoint(span.to_us);
            (first.unix_us()..=last.unix_us()).contains(&middle)
        });
        let commands: BTreeMap<_, _> =
            commands_in(within).into_iter().map(|command| (command.name, share(command.us))).collect();
        let own = evictions.unwrap_or(0.0) + expiry.unwrap_or(0.0) + commands.values().sum::<f64>();
        Some(Self {
            other: cpu.map(|cpu| (cpu + no_cpu.unwrap_or(0.0) - own).clamp(0.0, 1.0)),
            asleep: cpu.map(|cpu| (1.0 - cpu - no_cpu.unwrap_or(0.0)).max(0.0)),
            evictions,
            expiry,
            commands,
            no_cpu,
        })
    }

    /// Returns the commands to name.
    fn named(&self) -> impl Iterator<Item = &String> {
        let mut named: Vec<_> =
            self.commands.iter().filter(|(name, share)| !name.is_empty() && **share >= LEAST).collect();
        named.sort_by(|one, other| other.1.total_cmp(one.1));
        named.into_iter().take(NAMED).map(|(name, _)| name)
    }
}

/// Shows where the time of these periods went, with what commands took in them; `None` if that is not known. `others`
/// is how many commands are not among those, such as those of modules.
pub fn section(periods: [Period<'_>; 2], spans: Option<&[CommandSpan]>, others: Option<u64>) -> Markup {
    let shares = periods.each_ref().map(|period| Shares::of(period.moments, spans.unwrap_or_default()));
    if shares.iter().all(Option::is_none) {
        return html! {};
    }
    let mut names: Vec<&String> = Vec::new();
    for name in shares.iter().flatten().flat_map(Shares::named) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name: &str, share: &dyn Fn(&Shares) -> Option<f64>| {
        html! {
            tr {
                td.text { (name) }
                @for shares in &shares { td.number { (or_unknown(shares.as_ref().and_then(share), percent)) } }
            }
        }
    };
    let unnamed = |shares: &Shares| {
        let rest = shares.commands.iter().filter(|(name, _)| !names.contains(name));
        Some(rest.map(|(_, share)| share).sum())
    };
    html! {
        h2 { "Where the time went" }
        div.scroll {
            table {
                caption { "Shares of the main thread's time." }
                (head([("What", false), (periods[0].title, true), (periods[1].title, true)]))
                tbody {
                    (row("Evictions", &|shares| shares.evictions))
                    (row("Expire cycles", &|shares| shares.expiry))
                    @match spans {
                        Some(_) => {
                            @for name in &names {
                                @let share = |of: &Shares| Some(of.commands.get(*name).copied().unwrap_or(0.0));
                                (row(&name.to_uppercase(), &share))
                            }
                            (row("Other commands", &unnamed))
                            (row("What is no command, or still runs", &|shares| shares.other))
                        },
                        None => {
                            (row("Commands, and all else that it does", &|shares| shares.other))
                        },
                    }
                    (row("Asleep", &|shares| shares.asleep))
                    (row("Of all this, without a CPU", &|shares| shares.no_cpu))
                }
            }
        }
        p.note {
            @match spans {
                Some(_) => {
                    "Commands: by the server's own counters, which count one when it ends."
                    @if names.iter().any(|name| calls_others(name)) {
                        " The time of scripts and of EXEC includes that of the commands in them."
                    }
                },
                None => { "Commands by name: " (UNKNOWN) "." },
            }
            @if let Some(others) = others.filter(|others| *others > 0) {
                " " (super::text::grouped(others)) " commands have no counters there: those of modules."
            }
        }
    }
}

/// Returns the moments between two times, microseconds since 1970.
pub fn between(moments: &[Moment], from_us: u64, to_us: u64) -> &[Moment] {
    let begin = moments.partition_point(|moment| moment.unix_us() < from_us);
    let end = moments.partition_point(|moment| moment.unix_us() <= to_us);
    moments.get(begin..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_telemetry::{CommandShare, CommandSpan, Moment};

    use super::{Period, section};

    #[test]
    fn shares_of_the_time_are_shown_by_command() {
        let ms = |ms: u64| Some(Duration::from_millis(ms));
        let moment = |at: u64, cpu, waiting, evicting| Moment {
            at: Duration::from_millis(at),
            cpu: ms(cpu),
            waiting: ms(waiting),
            evicting: Duration::from_millis(evicting),
            ..Moment::default()
        };
        let moments = [moment(10_000, 0, 0, 0), moment(12_000, 1_500, 300, 400)];
        let command = |name: &str, us| CommandShare { name: name.to_owned(), calls: 1, us };
        let span = CommandSpan {
            from_us: 10_500_000,
            to_us: 11_000_000,
            commands: vec![command("evalsha", 600_000), command("config|get", 200_000), command("ping", 10)],
            rest: (9, 20_000),
            ..CommandSpan::default()
        };
        let shown = |spans: Option<&[CommandSpan]>| {
            let period = |title, moments| Period { title, moments };
            section([period("In it", &moments[..]), period("Before", &[])], spans, Some(1_200)).into_string()
        };
        let page = shown(Some(&[span]));
        for (name, share) in [
            ("Evictions", "20 %"),
            ("EVALSHA", "30 %"),
            ("CONFIG|GET", "10 %"),
            ("Other commands", "1.0 %"),
            ("What is no command, or still runs", "29 %"),
            ("Asleep", "10 %"),
            ("Of all this, without a CPU", "15 %"),
        ] {
            let row = format!(r#"{name}</td><td class="number">{share}</td><td class="number">not known</td>"#);
            assert!(page.contains(&row), "{row}: {page}");
        }
        assert!(page.contains("1,200 commands have no counters") && page.contains("EXEC"), "{page}");
        assert!(shown(None).contains("Commands, and all else that it does</td><td class=\"number\">70 %"));
    }
}
