use super::{BrokenInvariant, CycleCounts, ExpireAudit, ServerCounts};

/// A server whose cycles are read now and then.
struct Server {
    audit: ExpireAudit,
    own: ServerCounts,
    seen: CycleCounts,
}

impl Server {
    fn new() -> Self {
        let own = ServerCounts { expired_keys: Some(1_000_000), cycle_us: Some(90_000_000) };
        let mut server = Self { audit: ExpireAudit::default(), own, seen: CycleCounts::default() };
        server.read();
        server.read();
        server
    }

    fn read(&mut self) {
        self.audit.advance(self.own, Some(self.seen));
    }

    /// Makes cycles of 2 ms, each of which expires 50 keys, and counts them with these factors.
    fn cycles(&mut self, count: u64, keys: f64, time: f64) {
        for cycle in 0..count {
            self.seen.cycles += 1;
            self.seen.ns += (2e6 * time) as u64;
            self.seen.expired += (50.0 * keys) as u64;
            let add = |counter: &mut Option<u64>, by| *counter = counter.map(|value| value + by);
            add(&mut self.own.expired_keys, 50);
            add(&mut self.own.cycle_us, 2_000);
            if cycle % 5 == 0 {
                self.read();
            }
        }
    }

    fn contradiction(&self) -> Option<(BrokenInvariant, u64)> {
        let contradiction = self.audit.contradiction();
        contradiction.map(|one| (one.broken, one.failed))
    }
}

#[test]
fn what_agrees_is_no_contradiction() {
    let mut server = Server::new();
    server.cycles(5_000, 1.0, 1.0);
    // Other keys expire when they are asked for.
    server.cycles(5_000, 0.5, 0.9);
    assert_eq!(server.contradiction(), None);
    assert!(server.audit.keys.tested > 50 && server.audit.time.tested > 50);
}

#[test]
fn more_keys_than_the_server_counts_are_a_contradiction_in_the_third_window() {
    let mut server = Server::new();
    server.cycles(220, 1.1, 1.0);
    assert_eq!(server.contradiction(), None, "two windows");
    server.cycles(100, 1.1, 1.0);
    assert_eq!(server.contradiction(), Some((BrokenInvariant::ExpiredKeys, 3)));
}

#[test]
fn another_time_than_the_servers_is_a_contradiction() {
    for time in [0.4, 3.0] {
        let mut server = Server::new();
        server.cycles(400, 1.0, time);
        let broken = server.contradiction().map(|(broken, _)| broken);
        assert_eq!(broken, Some(BrokenInvariant::CycleTime), "{time}");
    }
}

#[test]
fn a_window_that_is_right_ends_a_series_of_wrong_ones() {
    let mut server = Server::new();
    for _ in 0..10 {
        server.cycles(210, 1.1, 3.0);
        server.cycles(210, 1.0, 1.0);
    }
    assert_eq!(server.contradiction(), None);
}

#[test]
fn counters_that_are_set_back_prove_nothing() {
    let mut server = Server::new();
    for _ in 0..50 {
        server.cycles(90, 1.0, 1.0);
        server.own.expired_keys = Some(0);
        server.own.cycle_us = Some(0);
    }
    assert_eq!(server.contradiction(), None);
}

#[test]
fn a_cycle_between_the_two_readings_proves_nothing() {
    let mut server = Server::new();
    for round in 0..2_000_u64 {
        server.cycles(1, 1.0, 1.0);
        // The programs have not counted all that the server has, or their counts were read first.
        let late = CycleCounts {
            cycles: server.seen.cycles - round % 2,
            ns: server.seen.ns - 2_000_000 * (round % 2),
            expired: server.seen.expired - 50 * (round % 2),
        };
        server.audit.advance(server.own, Some(late));
    }
    assert_eq!(server.contradiction(), None);
}

#[test]
fn what_is_not_known_is_not_compared() {
    let mut server = Server::new();
    server.own = ServerCounts::default();
    server.cycles(2_000, 5.0, 5.0);
    assert_eq!(server.contradiction(), None);
    // The server counts no time for these cycles, because they begin and end in the same microsecond.
    let mut server = Server::new();
    for _ in 0..20_000 {
        server.seen.cycles += 1;
        server.seen.ns += 900;
        server.read();
    }
    assert_eq!(server.contradiction(), None);
}

#[test]
fn cycles_that_are_never_seen_are_a_contradiction() {
    let mut server = Server::new();
    for _ in 0..20 {
        server.own.cycle_us = server.own.cycle_us.map(|us| us + 30_000);
        server.read();
    }
    let expected = Some(BrokenInvariant::CycleTime);
    assert_eq!(server.contradiction().map(|(broken, _)| broken), expected);
    // An idle server's cycles take next to no time.
    let mut idle = Server::new();
    for _ in 0..2_000 {
        idle.own.cycle_us = idle.own.cycle_us.map(|us| us + 10);
        idle.read();
    }
    assert_eq!(idle.contradiction(), None);
}
