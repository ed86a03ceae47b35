use std::time::Duration;

use proptest::prelude::*;

use super::{Reading, STALL_THRESHOLD, StallCause, Stalls};
use crate::ThreadTimes;

/// What a main thread does in each millisecond, microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    eviction: u64,
    expire: u64,
    commands: u64,
    waiting: u64,
    is_resting: Option<bool>,
}

const IDLE: Doing = Doing {
    eviction: 0,
    expire: 0,
    commands: 20,
    waiting: 0,
    is_resting: Some(true),
};

const EVICTING: Doing = Doing {
    eviction: 1_000,
    commands: 0,
    is_resting: None,
    ..IDLE
};

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
                times: ThreadTimes {
                    cpu_ns: 0,
                    waiting_ns: 0,
                },
                eviction_ns: Some(0),
                expire_ns: Some(0),
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
            let add = |to: &mut Option<u64>, us: u64| *to = to.map(|ns| ns + us * 1_000);
            add(&mut now.eviction_ns, doing.eviction);
            add(&mut now.expire_ns, doing.expire);
            now.times.cpu_ns += (doing.eviction + doing.expire + doing.commands) * 1_000;
            now.times.waiting_ns += doing.waiting * 1_000;
            now.is_resting = doing.is_resting;
            if step % every == 0 {
                self.stalls.advance(self.now);
                if let Some(oldest) = self.oldest {
                    self.stalls.look(self.now.at, oldest);
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
        let doing = Doing {
            eviction,
            expire,
            commands,
            waiting,
            is_resting: None,
        };
        let mut stalled = [0; StallCause::ALL.len()];
        stalled[cause as usize] = 400;
        assert_eq!(busy(doing), stalled, "{cause}");
    }
    let stopped = Doing {
        is_resting: Some(false),
        ..Doing::default()
    };
    assert_eq!(busy(stopped), [0, 0, 0, 0, 400, 0]);
    assert_eq!(busy(IDLE), [0, 0, 0, 0, 0, 400]);
}

#[test]
fn what_it_did_before_the_request_is_no_cause() {
    let mut server = Server::new();
    server.goes_on(EVICTING, 5_000, 20);
    // Read ten times a second, it rested until the request came.
    server.goes_on(IDLE, 1_090, 100);
    let script = Doing {
        commands: 1_000,
        ..Doing::default()
    };
    server.stalls(script, 310, 100);
    assert_eq!(server.stalled(), [0, 0, 200, 0, 0, 0]);
}

#[test]
fn what_may_be_evictions_is_not_said_to_be_commands() {
    let mut server = Server::new();
    server.now.eviction_ns = None;
    let busy = Doing {
        eviction: 600,
        commands: 400,
        ..Doing::default()
    };
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
    stalls.look(Duration::from_secs(9), Duration::from_secs(8));
    assert_eq!(
        stalls.total(StallCause::Unknown),
        Duration::from_millis(900)
    );
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
