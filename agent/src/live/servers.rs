//! What is shown of each server in one line.

use evictscope_records::text::{bytes, count, duration, or_unknown, seconds, share};

use super::agent::Unwatched;
use super::columns::{Alignment, Cell, Column};
use super::rates::Rates;
use super::reading::{Reading, ServerReading};
use crate::text::shortened;

/// A longer name loses its beginning.
const LONGEST_NAME: usize = 20;

/// Explains the mode `sampled` of a server.
const SAMPLED: &str = "sampled: evicting calls are observed for a part of the time; their rates are per second of it.";

/// More servers than these are counted instead of named.
const MOST_NAMES: usize = 3;

/// Said of servers of whose clients nothing is seen.
const UNSEEN: &str = "what clients wait is not known. It takes Linux 6.1 or newer with BTF; the agent's log says what is missing.";

/// A server, its last reading, and its rates since the one before.
pub struct Row<'a> {
    name: String,
    reading: &'a ServerReading,
    rates: Option<&'a Rates>,
}

impl<'a> Row<'a> {
    pub fn new(name: &str, reading: &'a ServerReading, rates: Option<&'a Rates>) -> Self {
        Self {
            name: shortened(name, LONGEST_NAME),
            reading,
            rates,
        }
    }

    fn rate(&self, of: fn(&Rates) -> Option<f64>) -> Option<f64> {
        self.rates.and_then(of)
    }

    /// Tells whether evictions fail now, or did since the agent found the server.
    fn has_failed(&self) -> bool {
        self.reading.failed_calls.is_some_and(|calls| calls > 0.0)
    }
}

/// Returns the columns for these servers, the most important ones first.
pub fn columns<'a>(rows: &[Row<'a>]) -> Vec<Column<Row<'a>>> {
    let names = rows.iter().map(|row| row.name.chars().count());
    let mut columns = vec![
        Column {
            heading: "SERVER",
            width: names.max().unwrap_or(0).max("SERVER".len()),
            alignment: Alignment::Left,
            cell: |row: &Row<'a>| row.name.clone().into(),
        },
        number("WAIT>1S", 7, |row| Cell {
            text: or_unknown(row.reading.waited_second, count),
            is_alarming: row.rate(|rates| rates.waited_second) > Some(0.0),
        }),
        number(">0.1S", 5, |row| {
            or_unknown(row.reading.waited_tenth, count).into()
        }),
        number("STALLED", 7, |row| Cell {
            text: or_unknown(row.reading.stalled_seconds, duration),
            is_alarming: row.rate(|rates| rates.stalled_share) > Some(0.0),
        }),
        number("WAITING", 9, |row| waiting(row.reading).into()),
        number("LONGEST", 7, |row| {
            or_unknown(row.reading.longest_wait, seconds).into()
        }),
    ];
    // Rare, and then it matters more than all that follows.
    if rows.iter().any(Row::has_failed) {
        columns.push(number("FAILING/S", 9, |row| {
            let failing = row.rate(|rates| rates.failing_calls);
            Cell {
                text: or_unknown(failing, count),
                is_alarming: failing > Some(0.0),
            }
        }));
    }
    columns.extend([
        Column {
            heading: "PHASE",
            width: "not_saturated".len(),
            alignment: Alignment::Left,
            cell: |row: &Row<'a>| or_unknown(row.reading.phase.as_ref(), String::clone).into(),
        },
        number("EVICT/S", 7, |row| {
            or_unknown(row.rate(|rates| rates.evicted_keys), count).into()
        }),
        number("MEMORY", 8, |row| memory(row.reading).into()),
        number("LIMIT", 8, |row| limit(row.reading).into()),
        number("COMMANDS/S", 10, |row| {
            or_unknown(row.rate(|rates| rates.commands), count).into()
        }),
        number("LONGEST-CALL", 12, |row| {
            or_unknown(row.reading.longest_call, seconds).into()
        }),
        number("BUFFERS", 8, |row| {
            or_unknown(row.reading.client_buffers, bytes).into()
        }),
        number("EVICTING", 8, |row| {
            or_unknown(row.rate(|rates| rates.evicting_share), share).into()
        }),
        number("CALLS/S", 7, |row| {
            or_unknown(row.rate(|rates| rates.evicting_calls), count).into()
        }),
        number("OBSERVED", 15, |row| observed(row).into()),
    ]);
    columns
}

fn number<'a>(heading: &'static str, width: usize, cell: fn(&Row<'a>) -> Cell) -> Column<Row<'a>> {
    Column {
        heading,
        width,
        alignment: Alignment::Right,
        cell,
    }
}

/// Returns how many clients wait now, and of how many.
fn waiting(reading: &ServerReading) -> String {
    let known = reading.clients_waiting.zip(reading.clients_connected);
    or_unknown(known, |(waiting, connected)| {
        format!("{}/{}", count(waiting), count(connected))
    })
}

/// Returns how much memory a server uses, by Redis's own account: as a share of its limit, where it has one.
fn memory(reading: &ServerReading) -> String {
    let counted = reading
        .used_memory
        .map(|used| (used - reading.not_counted_memory.unwrap_or(0.0)).max(0.0));
    match (counted, reading.maxmemory) {
        (Some(counted), Some(limit)) if limit > 0.0 => format!("{:.0} %", counted / limit * 100.0),
        (counted, _) => or_unknown(counted, bytes),
    }
}

fn limit(reading: &ServerReading) -> String {
    match reading.maxmemory {
        Some(0.0) => "no limit".to_owned(),
        limit => or_unknown(limit, bytes),
    }
}

/// Returns for how long the clients of a server were stalled by each cause, in one line; nothing where they were not.
pub fn stalls(reading: &ServerReading) -> Option<String> {
    let mut by: Vec<_> = reading.stalled_by.iter().collect();
    by.retain(|(_, stalled)| **stalled > 0.0);
    by.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let parts = by
        .into_iter()
        .map(|(cause, stalled)| format!("{cause} {}", duration(*stalled)));
    let parts: Vec<_> = parts.collect();
    (!parts.is_empty()).then(|| format!(" stalled by {}", parts.join(", ")))
}

fn observed(row: &Row<'_>) -> String {
    let observed = or_unknown(row.rate(|rates| rates.observed_share), share);
    match is_sampled(row.reading) {
        true => format!("sampled {observed}"),
        false => observed,
    }
}

fn is_sampled(reading: &ServerReading) -> bool {
    reading.probe_mode.as_deref() == Some("sampled")
}

/// Returns what else there is to know: why servers are not watched, or their probes are off, of which it is not known what
/// their clients wait, and what rates are of. A sentence each.
pub fn notes(reading: &Reading, unwatched: &[Unwatched]) -> Vec<String> {
    let unwatched = unwatched.iter().map(|one| {
        format!(
            "{} (pid {}) is not watched: {}",
            one.server, one.pid, one.why
        )
    });
    let withdrawn = reading.servers.iter().flat_map(|(server, reading)| {
        let reasons = reading.withdrawn.iter();
        reasons.map(move |reason| {
            let of = match reason.starts_with("expire_") {
                true => "expire cycles",
                false => "evictions",
            };
            format!("{server}: its probes on {of} are switched off, as a check failed ({reason}).")
        })
    });
    let unseen = reading
        .servers
        .iter()
        .filter(|(_, reading)| reading.clients_waiting.is_none())
        .map(|(server, _)| server.as_str());
    let unseen: Vec<_> = unseen.collect();
    let unseen = match &*unseen {
        [] => None,
        few if few.len() <= MOST_NAMES => Some(format!("{}: {UNSEEN}", few.join(", "))),
        many => Some(format!("{} servers: {UNSEEN}", many.len())),
    };
    let is_any_sampled = reading.servers.values().any(is_sampled);
    let sampled = is_any_sampled.then(|| SAMPLED.to_owned());
    unwatched
        .chain(withdrawn)
        .chain(unseen)
        .chain(sampled)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Row, columns, notes, stalls};
    use crate::live::agent::Unwatched;
    use crate::live::columns::{cells, fitting, plain};
    use crate::live::rates::Rates;
    use crate::live::reading::{Reading, ServerReading};

    fn limited() -> ServerReading {
        ServerReading {
            phase: Some("saturated".to_owned()),
            stalled_seconds: Some(61.25),
            waited_second: Some(12.0),
            waited_tenth: Some(1_200.0),
            clients_waiting: Some(7.0),
            clients_connected: Some(3_000.0),
            longest_wait: Some(2.25),
            used_memory: Some(110.0 * 1024.0),
            not_counted_memory: Some(10.0 * 1024.0),
            maxmemory: Some(200.0 * 1024.0),
            ..ServerReading::default()
        }
    }

    #[test]
    fn what_matters_most_fits_a_narrow_terminal() {
        let (unknown, limited) = (ServerReading::default(), limited());
        let rates = Rates {
            evicted_keys: Some(1_500.0),
            ..Rates::default()
        };
        let rows = [
            Row::new("6379", &limited, Some(&rates)),
            Row::new("/var/1", &unknown, None),
        ];
        // A frame takes two of 80 columns.
        let columns = columns(&rows);
        assert_eq!(
            plain(fitting(&columns, 78), &rows),
            "SERVER WAIT>1S >0.1S STALLED   WAITING LONGEST PHASE         EVICT/S   MEMORY\n\
             6379        12  1.2k  61.2 s    7/3.0k   2.2 s saturated        1.5k     50 %\n\
             /var/1       -     -       -         -       - -                   -        -\n"
        );
    }

    #[test]
    fn a_line_says_what_stalled_clients() {
        assert_eq!(stalls(&ServerReading::default()), None);
        let by = [("commands", 2.0), ("cpu", 61.25), ("expire", 0.0)];
        let reading = ServerReading {
            stalled_by: by
                .map(|(cause, seconds)| (cause.to_owned(), seconds))
                .into(),
            ..ServerReading::default()
        };
        assert_eq!(
            stalls(&reading).as_deref(),
            Some(" stalled by cpu 61.2 s, commands 2.0 s")
        );
    }

    #[test]
    fn stalls_and_failing_evictions_are_alarming() {
        let mut reading = limited();
        let rates = Rates {
            stalled_share: Some(0.4),
            failing_calls: Some(3.0),
            waited_second: Some(1.0),
            ..Rates::default()
        };
        let alarming = |reading: &ServerReading, rates: Option<&Rates>| {
            let rows = [Row::new("6379", reading, rates)];
            let columns = columns(&rows);
            let line = columns.iter().zip(cells(&columns, &rows[0]));
            line.filter(|(_, cell)| cell.is_alarming)
                .map(|(column, _)| column.heading)
                .collect::<Vec<_>>()
        };
        assert_eq!(alarming(&reading, Some(&rates)), ["WAIT>1S", "STALLED"]);
        reading.failed_calls = Some(5.0);
        assert_eq!(
            alarming(&reading, Some(&rates)),
            ["WAIT>1S", "STALLED", "FAILING/S"]
        );
        let calm = Rates::default();
        assert!(alarming(&reading, Some(&calm)).is_empty());
        assert!(alarming(&reading, None).is_empty());
    }

    #[test]
    fn notes_say_what_the_table_cannot() {
        let mut reading = Reading::default();
        assert!(notes(&reading, &[]).is_empty());
        let sampled = ServerReading {
            probe_mode: Some("sampled".to_owned()),
            withdrawn: vec!["lost_exit".to_owned(), "expire_keys".to_owned()],
            clients_waiting: Some(0.0),
            ..ServerReading::default()
        };
        reading.servers.insert("6379".to_owned(), sampled);
        reading
            .servers
            .insert("6381".to_owned(), ServerReading::default());
        let unwatched = Unwatched {
            server: "6380".to_owned(),
            pid: 43,
            why: "too old".to_owned(),
        };
        let notes = notes(&reading, &[unwatched]);
        assert_eq!(notes.len(), 5);
        assert_eq!(notes[0], "6380 (pid 43) is not watched: too old");
        assert!(notes[1].contains("6379") && notes[1].contains("evictions"));
        assert!(notes[2].contains("expire cycles") && notes[2].contains("expire_keys"));
        assert!(notes[3].starts_with("6381: what clients wait is not known"));
        assert!(notes[4].starts_with("sampled: "));
        for number in 7_000..7_064 {
            let name = number.to_string();
            reading.servers.insert(name, ServerReading::default());
        }
        let notes = super::notes(&reading, &[]);
        assert!(notes[2].starts_with("65 servers: what clients wait"));
    }
}
