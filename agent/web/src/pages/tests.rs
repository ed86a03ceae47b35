//! Tests what each page says, and that all foreign text in it is escaped.

use std::path::PathBuf;
use std::sync::Arc;

use evictscope_records::fixture::burst_record;
use evictscope_records::{Listed, NoProfile, Occasion, Record, RecordId, Summary};
use evictscope_telemetry::{BrokenInvariant, Burst, ProbeMode, Snapshot, SocketLook, microseconds};

use super::{ServerView, overview, record_page, record_page_among, server};
use crate::ExportedServer;
use crate::fixture::{before_a_burst, busy_server, new_server, partial_server, stalled_server, unwatched};

const HOSTILE: &str = "/tmp/\"a' b\"/<script>alert(1)</script>";

/// Returns what a page says, one element a line, without its styles and drawings.
fn said(page: &str) -> String {
    let mut text = page.replace(concat!("evictscope ", env!("CARGO_PKG_VERSION")), "evictscope");
    for (begin, end) in [("<svg", "</svg>"), ("<style>", "</style>"), (" src=\"", "\"")] {
        // The innermost first.
        while let Some(at) = text.rfind(begin) {
            let inside = at + begin.len();
            let length = text[inside..].find(end).unwrap_or_default();
            text.replace_range(at..inside + length + end.len(), "");
        }
    }
    text.replace("><", ">\n<")
}

#[track_caller]
fn must_say_the_same(name: &str, page: &str) {
    assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, said(page)) });
}

fn calm_server() -> ExportedServer {
    let mut server = new_server();
    server
        .state
        .apply(&Snapshot { look: Some(SocketLook { connected: 4, ..SocketLook::default() }), ..Snapshot::default() });
    server.mode = ProbeMode::Sampled;
    server
}

/// Returns a listed record, of `burst` or of no burst, and a file that is not a record.
fn listed(server: &str, burst: Option<&Burst>) -> [Listed; 2] {
    let mut summary = Summary::of(&burst_record());
    summary.server = server.to_owned();
    summary.began_us = burst.map_or(summary.began_us, |burst| microseconds(burst.started));
    let listed = |path: &str, summary| Listed { path: PathBuf::from(path), bytes: 2_048, summary };
    [listed("", Ok(summary)), listed("/var/lib/evictscope/records/<script>", Err("it is <cut> off".to_owned()))]
}

#[test]
fn the_overview_says_what_clients_felt_first() {
    let withdrawn = ExportedServer { withdrawn: Some(BrokenInvariant::Allocator), ..busy_server() };
    let servers = [calm_server(), stalled_server(), withdrawn, new_server(), partial_server()].map(Arc::new);
    let page = |servers, records| overview(servers, &[unwatched()], records, None);
    let records = listed("/run/<b>", None);
    must_say_the_same("overview", &page(Some(&servers), Ok(&records)));
    must_say_the_same("overview_before_the_first_scan", &page(None, Ok(&[])));
    must_say_the_same("overview_of_nothing", &page(Some(&[]), Err("--keep-records is <0>")));
}

#[test]
fn the_page_of_a_server_begins_with_what_clients_felt_and_ends_with_the_agent() {
    let page = |exported: &ExportedServer, records| {
        let timeline = exported.timeline().map(|timeline| timeline.clone());
        let view = ServerView {
            label: &exported.label,
            server: Some(exported),
            ended: None,
            timeline: timeline.as_ref(),
            records,
        };
        server(&view, Some(10))
    };
    let mut busy = busy_server();
    let started = busy.cycle().and_then(|cycle| cycle.recent().next());
    let started = started.map(|burst| burst.started).unwrap_or_default();
    let records = listed("6379", busy.bursts().next().map(|(burst, _)| burst).as_ref());
    busy.records = Arc::new(records[0].summary.iter().map(|of| (started, of.id.clone())).collect());
    must_say_the_same("server_after_a_burst", &page(&busy, Ok(&records)));
    let new = ExportedServer { cycle: Some(before_a_burst()), ..busy_server() };
    assert!(page(&new, Ok(&[])).contains("by what evicting keys of that size took in the lab. Clients"));
    let unhit = ExportedServer { withdrawn: Some(BrokenInvariant::Unhit), ..busy_server() };
    let unseen = "Longest evicting call of the last 5 minutes</dt><dd>not known";
    assert!(page(&unhit, Ok(&[])).contains(unseen));
    let cycles_withdrawn = Some(BrokenInvariant::CycleTime);
    let server_without_cycles = ExportedServer { cycles_withdrawn, ..calm_server() };
    must_say_the_same("server_without_cycles", &page(&server_without_cycles, Ok(&[])));
    must_say_the_same("server_of_which_little_is_known", &page(&partial_server(), Err("<b>")));
}

#[test]
fn a_server_that_has_ended_keeps_its_records() {
    let records = listed("/tmp/<script>", None);
    let ended = busy_server();
    let view =
        ServerView { label: "/tmp/<script>", server: None, ended: Some(&ended), timeline: None, records: Ok(&records) };
    must_say_the_same("server_that_has_ended", &server(&view, None));
}

#[test]
fn the_page_of_a_record_begins_with_three_sentences() {
    let record = Record { agent: "an agent".to_owned(), ..burst_record() };
    must_say_the_same("record", &record_page(&record, false));
    let asked = Record {
        occasion: Occasion::Asked,
        burst: None,
        ended_us: record.began_us,
        slowest: Vec::new(),
        profile: Err(NoProfile("perf_event_paranoid is 3".to_owned())),
        ..record.clone()
    };
    must_say_the_same("record_that_was_asked_for", &record_page(&asked, false));
    let nothing = Record {
        moments: Vec::new(),
        latencies: Vec::new(),
        began_us: u64::MAX,
        ended_us: 0,
        overhead_ratio: None,
        occasion: Occasion::Stall,
        ..asked
    };
    must_say_the_same("record_of_nothing", &record_page(&nothing, false));
}

#[test]
fn a_file_leads_nowhere_and_needs_nothing() {
    let page = record_page(&burst_record(), true);
    for outside in ["href=", "src=\"h", "src=\"/", "<script", "<link", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_record_leads_to_those_of_its_server_before_and_after_it() {
    let records = [(3, "6379"), (2, "other"), (1, "6379"), (0, "6379")].map(|(hour, server)| {
        let mut record = burst_record();
        record.id = RecordId::new(record.began_us + hour * 3_600_000_000, server, 7);
        record.server.label = server.to_owned();
        record
    });
    let listed = |record| Listed { path: PathBuf::new(), bytes: 1, summary: Ok(Summary::of(record)) };
    let page = record_page_among(&records[2], &records.each_ref().map(listed));
    for (which, other) in [("before", &records[3]), ("after", &records[0])] {
        let link = format!("href=\"/bursts/{}\">the record {which} it</a>: Burst, ", other.id);
        assert!(page.contains(&link), "{link} is not in {page}");
    }
    assert!(!page.contains(&format!("/bursts/{}", records[1].id)), "of another server");
}

#[test]
fn all_text_of_a_hostile_record_is_escaped() {
    let mut record = burst_record();
    let (server, hostile) = (&mut record.server, || HOSTILE.to_owned());
    (server.label, server.command, server.exe) = (hostile(), hostile(), hostile());
    (server.product, server.version, server.build_id) = (Some(hostile()), Some(hostile()), Some(hostile()));
    record.agent = hostile();
    record.configuration.maxmemory_policy = Some(hostile());
    record.not_found = vec![hostile()];
    let mut other = record.clone();
    other.profile = Err(NoProfile(hostile()));
    if let Ok(profile) = &mut record.profile {
        profile.functions.fill(hostile());
        // A damaged file may name functions that do not exist.
        profile.stacks[0].frames.push(1_000);
    }
    for record in [record, other] {
        let page = record_page(&record, false);
        assert!(!page.contains("<script") && !page.contains("\"a' b\""), "{page}");
        let link = "href=\"/server/%2Ftmp%2F%22a%27%20b%22%2F%3Cscript%3Ealert%281%29%3C%2Fscript%3E\"";
        assert!(page.contains(link), "{page}");
    }
}
