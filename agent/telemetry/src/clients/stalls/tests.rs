use std::time::Duration;

use proptest::prelude::*;

use super::{Inside, Reading, STALL_THRESHOLD, StallCause, Stalls};
use crate::ThreadTimes;

/// What a main thread does in each millisecond, microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    eviction: u64,
    expire: u64,
    commands: u64,
    waiting: u64,
    /// Asleep inside an evicting call.
    asleep: u64,
    is_resting: Option<bool>,
}

const IDLE: Doing = Doing { eviction: 0, expire: 0, commands: 20, waiting: 0, asleep: 0, is_resting: Some(true) };

const EVICTING: Doing = Doing { eviction: 1_000, commands: 0, is_resting: None, ..IDLE };

/// A server whose oldest request came at some moment.
struct Server {
    stalls: Stalls,
    now: Reading,
    oldest: Option<Duration>,
}

impl Server {
    fn new() -> Self {
        let mut server = Self {
            stalls: Stalls::new(STALL_THRESHOLD),
            now: Reading {
                at: Duration::from_secs(5),
                times: ThreadTimes { cpu_ns: 0, waiting_ns: 0 },
                eviction: Some(Inside::default()),
                expire: Some(Inside::default()),
                is_resting: None,
            },
            oldest: None,
        };
        server.stalls.advance(server.now);
        server
    }

    /// Goes on for some milliseconds, and is read and looked at every `every` of them.
    fn goes_on(&mut self, doing: Doing, milliseconds: u64, every: u64) {
        for step in 1..=milliseconds {
            let now = &mut self.now;
            now.at += Duration::from_millis(1);
            let add = |to: &mut Option<Inside>, us: u64, asleep: u64| {
                if let Some(inside) = to {
                    inside.ns += (us + asleep) * 1_000;
                    inside.cpu_ns += us * 1_000;
                }
            };
            add(&mut now.eviction, doing.eviction, doing.asleep);
            add(&mut now.expire, doing.expire, 0);
            now.times.cpu_ns += (doing.eviction + doing.expire + doing.commands) * 1_000;
            now.times.waiting_ns += doing.waiting * 1_000;
            now.is_resting = doing.is_resting;
            if step % every == 0 {
                self.stalls.advance(self.now);
                if let Some(oldest) = self.oldest {
                    self.stalls.take_in(&[(oldest, self.now.at)]);
                }
            }
        }
    }

    /// Does the same while a request that comes now waits.
    fn stalls(&mut self, doing: Doing, milliseconds: u64, every: u64) {
        self.oldest = Some(self.now.at);
        self.goes_on(doing, milliseconds, every);
        self.oldest = None;
    }

    /// Returns the milliseconds stalled by each cause.
    fn stalled(&self) -> [u128; 6] {
        StallCause::ALL.map(|cause| self.stalls.total(cause).as_millis())
    }
}

#[test]
fn each_cause_is_told() {
    let busy = |doing: Doing| {
        let mut server = Server::new();
        server.goes_on(IDLE, 2_050, 100);
        server.stalls(doing, 500, 20);
        server.goes_on(IDLE, 2_000, 100);
        server.stalled()
    };
    for (cause, [eviction, expire, commands, waiting]) in [
        (StallCause::Eviction, [600, 0, 400, 0]),
        (StallCause::Expire, [0, 600, 400, 0]),
        (StallCause::Commands, [300, 0, 700, 0]),
        (StallCause::Cpu, [250, 0, 100, 650]),
    ] {
        let doing = Doing { eviction, expire, commands, waiting, ..Doing::default() };
        let mut stalled = [0; StallCause::ALL.len()];
        stalled[cause as usize] = 400;
        assert_eq!(busy(doing), stalled, "{cause}");
    }
    let stopped = Doing { is_resting: Some(false), ..Doing::default() };
    assert_eq!(busy(stopped), [0, 0, 0, 0, 400, 0]);
    // A page or a disk again and again: it is not seen asleep at a reading.
    let short = Doing { commands: 100, waiting: 300, ..Doing::default() };
    assert_eq!(busy(short), [0, 0, 0, 0, 400, 0]);
    // It waits for its lazy-free thread.
    let asleep = Doing { eviction: 10, asleep: 990, is_resting: Some(false), ..Doing::default() };
    assert_eq!(busy(asleep), [400, 0, 0, 0, 0, 0]);
    assert_eq!(busy(IDLE), [0, 0, 0, 0, 0, 400]);
}

#[test]
fn what_it_did_before_the_request_is_no_cause() {
    let mut server = Server::new();
    server.goes_on(EVICTING, 5_000, 20);
    // Read ten times a second, it rested until the request came.
    server.goes_on(IDLE, 1_090, 100);
    let script = Doing { commands: 1_000, ..Doing::default() };
    server.stalls(script, 310, 100);
    assert_eq!(server.stalled(), [0, 0, 200, 0, 0, 0]);
}

#[test]
fn what_may_be_evictions_is_not_said_to_be_commands() {
    let mut server = Server::new();
    server.now.eviction = None;
    let busy = Doing { eviction: 600, commands: 400, ..Doing::default() };
    server.stalls(busy, 500, 20);
    assert_eq!(server.stalled(), [0, 0, 0, 0, 0, 400]);
}

#[test]
fn no_time_is_counted_twice() {
    let mut server = Server::new();
    server.stalls(EVICTING, 1_000, 20);
    // The request was read; another one is nearly as old.
    server.oldest = Some(server.now.at - Duration::from_millis(900));
    server.goes_on(EVICTING, 500, 20);
    assert_eq!(server.stalled(), [1_400, 0, 0, 0, 0, 0]);
}

#[test]
fn a_server_that_was_never_read_is_stalled_by_what_is_not_known() {
    let mut stalls = Stalls::new(STALL_THRESHOLD);
    stalls.take_in(&[(Duration::from_secs(8), Duration::from_secs(9))]);
    assert_eq!(stalls.total(StallCause::Unknown), Duration::from_millis(900));
}

#[test]
fn each_stall_ends_when_its_last_request_was_answered() {
    let mut stalls = Stalls::new(STALL_THRESHOLD);
    let ms = Duration::from_millis;
    // Two pauses of 0.15 s between two looks, each felt by two clients.
    let waits = [
        (ms(5_000), ms(5_150)),
        (ms(5_500), ms(5_640)),
        (ms(5_010), ms(5_150)),
        (ms(5_502), ms(5_650)),
        (ms(5_700), ms(5_760)),
    ];
    assert_eq!(stalls.take_in(&waits), Some(StallCause::Unknown));
    assert_eq!(stalls.total(StallCause::Unknown), ms(100));
    assert_eq!(stalls.take_in(&waits), None);
}

proptest! {
    #[test]
    fn clients_are_stalled_for_as_long_as_requests_wait_over_the_threshold(
        waits in prop::collection::vec((1..400_u64, 0..1_000_u64), 1..40),
    ) {
        let mut server = Server::new();
        let mut stalled = 0;
        for (pause, wait) in waits {
            server.goes_on(IDLE, pause, 20);
            server.stalls(IDLE, wait / 20 * 20, 20);
            stalled += u128::from((wait / 20 * 20).saturating_sub(100));
        }
        prop_assert_eq!(server.stalled().iter().sum::<u128>(), stalled);
    }
}
