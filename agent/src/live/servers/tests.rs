use super::{Row, columns, notes, stalls};
use crate::live::agent::Unwatched;
use crate::live::columns::{cells, fitting, plain};
use crate::live::rates::Rates;
use crate::live::reading::tests::server;
use crate::live::reading::*;

const SATURATED: Metric = ("evictscope_phase", &[("phase", "saturated")]);
const LIMITED: [(Metric, f64); 9] = [
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
    let rows = [Row::new("6379", &now, Some(rates)), Row::new("/var/1", &unknown, None)];
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
    const BY: [Metric; 3] =
        [(STALLED.0, &[("cause", "commands")]), (STALLED.0, &[("cause", "cpu")]), (STALLED.0, &[("cause", "expire")])];
    let reading = server(&[(BY[0], 2.0), (BY[1], 61.25), (BY[2], 0.0)]);
    assert_eq!(stalls(&reading).as_deref(), Some(" stalled by cpu 61.2 s, commands 2.0 s"));
}

#[test]
fn stalls_and_failing_evictions_are_alarming() {
    let alarming = |before: &[(Metric, f64)], now: &[(Metric, f64)]| {
        let (before, now) = (&server(before), &server(now));
        let rates = Rates::new(before, now, 1.0);
        let rows = [Row::new("6379", now, Some(rates))];
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

#[test]
fn notes_say_what_the_table_cannot() {
    const STATES: [Metric; 3] = [
        ("evictscope_probe_mode", &[("mode", "sampled")]),
        ("evictscope_plan_withdrawn", &[("reason", "lost_exit")]),
        ("evictscope_plan_withdrawn", &[("reason", "expire_keys")]),
    ];
    let mut reading = Reading::default();
    assert!(notes(&reading, &[]).is_empty());
    let states = STATES.map(|state| (state, 1.0));
    let sampled = server(&[&states[..], &[(CLIENTS_WAITING, 0.0)]].concat());
    reading.servers.insert("6379".to_owned(), sampled);
    reading.servers.insert("6381".to_owned(), ServerReading::default());
    let unwatched = Unwatched { server: "6380".to_owned(), pid: 43, why: "too old".to_owned() };
    let notes = notes(&reading, &[unwatched]);
    assert_eq!(notes.len(), 5);
    assert_eq!(notes[0], "6380 (pid 43) is not watched: too old");
    assert!(notes[1].contains("6379") && notes[1].contains("evictions"));
    assert!(notes[2].contains("expire cycles") && notes[2].contains("expire_keys"));
    assert!(notes[3].starts_with("6381: how long clients wait is not known"));
    assert!(notes[4].starts_with("sampled: "));
    for number in 7_000..7_064 {
        let name = number.to_string();
        reading.servers.insert(name, ServerReading::default());
    }
    let notes = super::notes(&reading, &[]);
    assert!(notes[2].starts_with("65 servers: how long clients wait"));
}
