//! What is shown of each server in one line.

use evictscope_model::answers::UnwatchedServer;
use evictscope_records::text::{bytes, count, duration, or_unknown, seconds, share};

use super::columns::{Cell, Column};
use super::rates::{Rates, Readings};
use crate::client::reading::*;
use crate::text::shortened;

/// A longer name loses its beginning.
const LONGEST_NAME: usize = 20;

/// Explains the mode `sampled` of a server.
const SAMPLED: &str = "sampled: evicting calls are observed part of the time; their rates are per second of it.";

/// More servers than these are counted instead of named.
const MOST_NAMES: usize = 3;

/// Shown for servers whose clients are not seen.
const UNSEEN: &str =
    "how long clients wait is not known. It takes Linux 6.1 or newer with BTF; the agent's log says what is missing.";

/// A server, its last reading, and its rates since the one before.
pub struct ServerRow<'a> {
    name: String,
    reading: &'a ServerReading,
    rates: Option<Rates<'a>>,
}

impl<'a> ServerRow<'a> {
    pub fn new(name: &str, reading: &'a ServerReading, rates: Option<Rates<'a>>) -> Self {
        Self { name: shortened(name, LONGEST_NAME), reading, rates }
    }

    fn a_second(&self, metric: Selector) -> Option<f64> {
        self.rates?.a_second(metric)
    }

    fn an_observed_second(&self, metric: Selector) -> Option<f64> {
        self.rates?.an_observed_second(metric)
    }

    fn shown(&self, metric: Selector, text: fn(f64) -> String) -> String {
        or_unknown(self.reading.get(metric), text)
    }

    /// Returns whether evictions fail now, or have failed since the agent found the server.
    fn has_failed(&self) -> bool {
        self.reading.get(FAILED_CALLS) > Some(0.0)
    }
}

pub fn rows(readings: &Readings) -> Vec<ServerRow<'_>> {
    readings.now.servers.iter().map(|(server, now)| ServerRow::new(server, now, readings.rates(server))).collect()
}

/// Returns the columns for these servers, the most important ones first.
pub fn columns<'a>(rows: &[ServerRow<'a>]) -> Vec<Column<ServerRow<'a>>> {
    let names = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut columns = vec![
        Column::text("SERVER", names.max("SERVER".len()), |row: &ServerRow<'a>| row.name.clone().into()),
        Column::number("WAIT>1S", 7, |row| Cell {
            text: row.shown(WAITED_SECOND, count),
            is_alarming: row.a_second(WAITED_SECOND) > Some(0.0),
        }),
        Column::number(">0.1S", 5, |row| row.shown(WAITED_TENTH, count).into()),
        Column::number("STALLED", 7, |row| Cell {
            text: row.shown(STALLED, duration),
            is_alarming: row.a_second(STALLED) > Some(0.0),
        }),
        Column::number("WAITING", 9, |row| waiting(row.reading).into()),
        Column::number("LONGEST", 7, |row| row.shown(LONGEST_WAIT, seconds).into()),
    ];
    // Failures are rare, but then matter more than all that follows.
    if rows.iter().any(ServerRow::has_failed) {
        columns.push(Column::number("FAILING/S", 9, |row| {
            let failing = row.an_observed_second(FAILED_CALLS);
            Cell { text: or_unknown(failing, count), is_alarming: failing > Some(0.0) }
        }));
    }
    columns.extend([
        Column::text("PHASE", "not_saturated".len(), |row: &ServerRow<'a>| {
            or_unknown(row.reading.phase(), str::to_owned).into()
        }),
        Column::number("EVICT/S", 7, |row| or_unknown(row.a_second(EVICTED_KEYS), count).into()),
        Column::number("MEMORY", 8, |row| memory(row.reading).into()),
        Column::number("LIMIT", 8, |row| limit(row.reading).into()),
        Column::number("COMMANDS/S", 10, |row| or_unknown(row.a_second(COMMANDS), count).into()),
        Column::number("LONGEST-CALL", 12, |row| row.shown(LONGEST_CALL, seconds).into()),
        Column::number("BUFFERS", 8, |row| row.shown(CLIENT_BUFFERS, bytes).into()),
        Column::number("EVICTING", 8, |row| or_unknown(row.an_observed_second(CALL_SECONDS), share).into()),
        Column::number("CALLS/S", 7, |row| or_unknown(row.an_observed_second(CALLS), count).into()),
        Column::number("OBSERVED", 15, |row| observed(row).into()),
    ]);
    columns
}

fn waiting(reading: &ServerReading) -> String {
    let known = reading.get(CLIENTS_WAITING).zip(reading.get(CLIENTS_CONNECTED));
    or_unknown(known, |(waiting, connected)| format!("{}/{}", count(waiting), count(connected)))
}

/// Returns how much memory a server uses, by Redis's own account: as a share of its limit, if it has one.
fn memory(reading: &ServerReading) -> String {
    let not_counted = reading.get(NOT_COUNTED_MEMORY).unwrap_or(0.0);
    let used = reading.get(USED_MEMORY);
    let counted = used.map(|used| (used - not_counted).max(0.0));
    match (counted, reading.get(MAXMEMORY).filter(|_| !ignores_limit(reading))) {
        (Some(counted), Some(limit)) if limit > 0.0 => format!("{:.0} %", counted / limit * 100.0),
        (counted, _) => or_unknown(counted, bytes),
    }
}

fn ignores_limit(reading: &ServerReading) -> bool {
    reading.get(LIMIT_IGNORED).is_some()
}

fn limit(reading: &ServerReading) -> String {
    match reading.get(MAXMEMORY) {
        Some(0.0) => "no limit".to_owned(),
        Some(_) if ignores_limit(reading) => "ignored".to_owned(),
        limit => or_unknown(limit, bytes),
    }
}

/// Returns how long the clients of a server were stalled by each cause, in one line; `None` if they were not.
pub fn stalls(reading: &ServerReading) -> Option<String> {
    let mut by: Vec<_> = reading.by(STALLED, "cause").filter(|(_, seconds)| *seconds > 0.0).collect();
    by.sort_by(|(_, left), (_, right)| right.total_cmp(left));
    let causes: Vec<_> = by.into_iter().map(|(cause, seconds)| format!("{cause} {}", duration(seconds))).collect();
    (!causes.is_empty()).then(|| format!(" stalled by {}", causes.join(", ")))
}

fn observed(row: &ServerRow<'_>) -> String {
    let observed = or_unknown(row.rates.and_then(|rates| rates.share(OBSERVED)), share);
    if is_sampled(row.reading) { format!("sampled {observed}") } else { observed }
}

fn is_sampled(reading: &ServerReading) -> bool {
    reading.states(PROBE_MODE, "mode").any(|mode| mode == "sampled")
}

/// Returns what else there is to know, a sentence each: why servers are not watched or their probes are off, for which
/// servers client waits are not known, and which time rates refer to.
pub fn notes(reading: &Reading, unwatched: &[UnwatchedServer]) -> Vec<String> {
    let unwatched = unwatched.iter().map(|one| format!("{} (pid {}) is not watched: {}", one.server, one.pid, one.why));
    let withdrawn = reading.servers.iter().flat_map(|(server, reading)| {
        reading.states(WITHDRAWN, "reason").map(move |reason| {
            let of = if reason.starts_with("expire_") { "expire cycles" } else { "evictions" };
            format!("{server}: its probes on {of} are switched off, as a check failed ({reason}).")
        })
    });
    let is_unseen = |(_, reading): &(&String, &ServerReading)| reading.get(CLIENTS_WAITING).is_none();
    let unseen = Vec::from_iter(reading.servers.iter().filter(is_unseen).map(|(server, _)| server.as_str()));
    let unseen = match &*unseen {
        [] => None,
        few if few.len() <= MOST_NAMES => Some(format!("{}: {UNSEEN}", few.join(", "))),
        many => Some(format!("{} servers: {UNSEEN}", many.len())),
    };
    let sampled = reading.servers.values().any(is_sampled).then(|| SAMPLED.to_owned());
    unwatched.chain(withdrawn).chain(unseen).chain(sampled).collect()
}

#[cfg(test)]
pub mod tests {
    use evictscope_model::answers::UnwatchedReason;

    use super::*;
    use crate::client::reading::tests::server;
    use crate::live::columns::{cells, fitting, plain};

    const SATURATED: Selector = PHASE.with(&[("phase", "saturated")]);
    const LIMITED: [(Selector, f64); 9] = [
        (SATURATED, 1.0),
        (STALLED, 61.25),
        (WAITED_SECOND, 12.0),
        (WAITED_TENTH, 1_200.0),
        (CLIENTS_WAITING, 7.0),
        (CLIENTS_CONNECTED, 3_000.0),
        (LONGEST_WAIT, 2.25),
        (USED_MEMORY, 110.0 * 1024.0),
        (NOT_COUNTED_MEMORY, 10.0 * 1024.0),
    ];

    #[test]
    fn what_matters_most_fits_a_narrow_terminal() {
        let more = |keys| [(MAXMEMORY, 200.0 * 1024.0), (EVICTED_KEYS, keys)];
        let [before, now] = [0.0, 1_500.0].map(|keys| server(&[&LIMITED[..], &more(keys)].concat()));
        let rates = Rates::new(&before, &now, 1.0);
        let unknown = ServerReading::default();
        let rows = [ServerRow::new("6379", &now, Some(rates)), ServerRow::new("/var/1", &unknown, None)];
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
        const BY: [Selector; 3] = [
            STALLED.with(&[("cause", "commands")]),
            STALLED.with(&[("cause", "cpu")]),
            STALLED.with(&[("cause", "expire")]),
        ];
        let reading = server(&[(BY[0], 2.0), (BY[1], 61.25), (BY[2], 0.0)]);
        assert_eq!(stalls(&reading).as_deref(), Some(" stalled by cpu 61.2 s, commands 2.0 s"));
    }

    #[test]
    fn stalls_and_failing_evictions_are_alarming() {
        let alarming = |before: &[(Selector, f64)], now: &[(Selector, f64)]| {
            let (before, now) = (&server(before), &server(now));
            let rows = [ServerRow::new("6379", now, Some(Rates::new(before, now, 1.0)))];
            let columns = columns(&rows);
            let line = columns.iter().zip(cells(&columns, &rows[0]));
            line.filter(|(_, cell)| cell.is_alarming).map(|(column, _)| column.heading).collect::<Vec<_>>()
        };
        let before = [(STALLED, 1.0), (WAITED_SECOND, 2.0), (OBSERVED, 5.0)];
        let now = [(STALLED, 1.4), (WAITED_SECOND, 3.0), (OBSERVED, 6.0)];
        assert_eq!(alarming(&before, &now), ["WAIT>1S", "STALLED"]);
        let failed = |readings: &[_], calls| [readings, &[(FAILED_CALLS, calls)]].concat();
        let (before, now) = (failed(&before, 2.0), failed(&now, 5.0));
        let all = ["WAIT>1S", "STALLED", "FAILING/S"];
        assert_eq!(alarming(&before, &now), all);
        assert!(alarming(&now, &now).is_empty());
        assert!(alarming(&[], &now).is_empty());
    }

    /// Returns a server that is too old.
    pub fn unwatched() -> UnwatchedServer {
        UnwatchedServer {
            server: "6380".to_owned(),
            pid: 43,
            reason: UnwatchedReason::Executable,
            why: "too old".to_owned(),
        }
    }

    #[test]
    fn notes_say_what_the_table_cannot() {
        const STATES: [Selector; 3] = [
            PROBE_MODE.with(&[("mode", "sampled")]),
            WITHDRAWN.with(&[("reason", "lost_exit")]),
            WITHDRAWN.with(&[("reason", "expire_keys")]),
        ];
        let mut reading = Reading::default();
        assert!(notes(&reading, &[]).is_empty());
        let states = STATES.map(|state| (state, 1.0));
        let sampled = server(&[&states[..], &[(CLIENTS_WAITING, 0.0)]].concat());
        reading.servers.insert("6379".to_owned(), sampled);
        reading.servers.insert("6381".to_owned(), ServerReading::default());
        insta::assert_snapshot!(notes(&reading, &[unwatched()]).join("\n"));
        for number in 7_000..7_064 {
            reading.servers.insert(number.to_string(), ServerReading::default());
        }
        assert!(notes(&reading, &[])[2].starts_with("65 servers: how long clients wait"));
    }
}
