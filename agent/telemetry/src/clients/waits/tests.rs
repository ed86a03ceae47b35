use std::time::Duration;

use super::Waits;
use crate::{Owed, SocketLook, Unread};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Looks at connections with unread data: which socket, how far it was read, and when data last came.
fn look(waits: &mut Waits, at: u64, unread: &[(u64, u32, Option<u64>)]) {
    look_at_both(waits, at, unread, &[], None);
}

/// The same, with connections that are owed an answer, and when the main thread last came to rest.
fn look_at_both(
    waits: &mut Waits,
    at: u64,
    unread: &[(u64, u32, Option<u64>)],
    owed: &[(u64, u32, u64)],
    rested: Option<u64>,
) {
    let unread = unread.iter().map(|(socket, read_to, came)| Unread {
        socket: *socket,
        read_to: *read_to,
        answered_to: 0,
        bytes: 30,
        came: came.map(ms),
    });
    let owed = owed.iter().map(|(socket, read_to, came)| Owed {
        socket: *socket,
        read_to: *read_to,
        answered_to: 0,
        came: ms(*came),
    });
    let look = SocketLook {
        at: ms(at),
        connected: 9,
        unread: unread.collect(),
        owed: owed.collect(),
    };
    waits.take_in(&look, rested.map(ms));
}

#[test]
fn a_request_is_as_old_as_its_data() {
    let mut waits = Waits::default();
    assert!(!waits.is_known());
    let both = [(1, 7, Some(4_950)), (2, 3, Some(4_990))];
    look(&mut waits, 5_000, &both);
    assert_eq!((waits.oldest(), waits.waiting()), (Some(ms(4_950)), 2));
    assert_eq!((waits.over(), waits.connected()), ([0, 0], 9));
    look(&mut waits, 5_060, &both);
    assert_eq!(waits.over(), [1, 0]);
    // Each is counted once for each length.
    look(&mut waits, 6_100, &both);
    look(&mut waits, 6_200, &both);
    assert_eq!((waits.over(), waits.longest()), ([2, 2], ms(1_250)));
    look(&mut waits, 6_300, &[]);
    assert_eq!((waits.oldest(), waits.longest()), (None, ms(1_250)));
    look(&mut waits, 306_300, &[]);
    assert_eq!(waits.longest(), ms(0));
}

#[test]
fn a_client_that_goes_on_sending_is_not_young() {
    let mut waits = Waits::default();
    for at in (1_000..=1_300).step_by(20) {
        look(&mut waits, at, &[(1, 7, Some(at - 1))]);
    }
    assert_eq!((waits.oldest(), waits.over()), (Some(ms(999)), [1, 0]));
}

#[test]
fn a_client_whose_requests_are_read_one_after_the_other_is_not_old() {
    let mut waits = Waits::default();
    for at in (1_000..=3_000).step_by(100) {
        look(&mut waits, at, &[(1, at as u32, Some(900))]);
    }
    assert_eq!((waits.oldest(), waits.over()), (Some(ms(2_950)), [1, 0]));
}

#[test]
fn a_unix_socket_is_as_old_as_the_first_look_that_finds_it() {
    let mut waits = Waits::default();
    look(&mut waits, 1_000, &[(1, 7, None)]);
    look(&mut waits, 1_150, &[(1, 7, None)]);
    assert_eq!((waits.oldest(), waits.over()), (Some(ms(1_000)), [1, 0]));
    look(&mut waits, 1_160, &[(1, 8, None)]);
    assert_eq!(waits.oldest(), Some(ms(1_160)));
}

#[test]
fn waits_are_added_up() {
    let mut waits = Waits::default();
    look(&mut waits, 1_000, &[]);
    let both = [(1, 7, Some(1_990)), (2, 7, Some(1_990))];
    look(&mut waits, 2_000, &both);
    look(&mut waits, 2_500, &both);
    look(&mut waits, 2_600, &[]);
    // (0 + 2) / 2 for 1 s, 2 for 0.5 s, (2 + 0) / 2 for 0.1 s.
    assert!((waits.seconds() - 2.1).abs() < 1e-9, "{}", waits.seconds());
}

/// A command executed before a script in the same turn of the event loop is answered after it.
#[test]
fn a_request_that_was_read_waits_until_it_is_answered() {
    let mut waits = Waits::default();
    let (unread, rested) = ([(1, 7, Some(990))], Some(970));
    look_at_both(&mut waits, 1_000, &unread, &[(2, 5, 980)], rested);
    let owed = [(1, 37, 990), (2, 5, 980)];
    look_at_both(&mut waits, 1_300, &[], &owed, rested);
    assert_eq!((waits.oldest(), waits.waiting()), (Some(ms(980)), 2));
    assert_eq!(waits.over(), [2, 0]);
    // The client whose request was unread has an answer, and has since sent another request, which was read.
    look_at_both(&mut waits, 1_400, &[], &[(1, 67, 1_390)], rested);
    assert_eq!((waits.oldest(), waits.over()), (Some(ms(1_390)), [2, 0]));
}

#[test]
fn clients_that_block_on_purpose_do_not_wait() {
    // A calm server: its main thread rests.
    let mut waits = Waits::default();
    look_at_both(&mut waits, 1_000, &[], &[(1, 7, 900)], Some(990));
    look_at_both(&mut waits, 60_000, &[], &[(1, 7, 900)], Some(59_990));
    assert_eq!((waits.waiting(), waits.over()), (0, [0, 0]));
    // A server that never rests: it answers others that came later.
    let mut waits = Waits::default();
    for at in (1_000..3_000).step_by(20) {
        let owed = [(1, 7, 900), (2, at as u32, at - 5), (3, at as u32, at - 3)];
        look_at_both(&mut waits, at, &[], &owed, None);
    }
    assert_eq!((waits.waiting(), waits.over()), (2, [1, 0]));
}

/// Requests of a closed loop follow each other within milliseconds.
#[test]
fn the_next_request_of_a_client_is_another_one() {
    let mut waits = Waits::default();
    for at in (1_000..3_000).step_by(20) {
        let (unread, owed) = ([(1, at as u32, Some(at - 1))], [(1, at as u32, at - 1)]);
        match at % 40 {
            0 => look_at_both(&mut waits, at, &unread, &[], None),
            _ => look_at_both(&mut waits, at, &[], &owed, None),
        }
    }
    assert_eq!((waits.longest(), waits.over()), (ms(1), [0, 0]));
}

#[test]
fn what_came_before_the_main_thread_rested_waits_since_then_at_most() {
    let mut waits = Waits::default();
    look_at_both(&mut waits, 1_000, &[(1, 7, Some(200))], &[], Some(950));
    assert_eq!(waits.oldest(), Some(ms(950)));
}

/// A client sends its next request as soon as it has the answer to the one before, which the server has read completely.
#[test]
fn a_request_that_was_answered_makes_the_next_no_older() {
    let owed = |answered_to| Owed {
        socket: 1,
        read_to: 37,
        answered_to,
        came: ms(990),
    };
    let unread = |answered_to| Unread {
        socket: 1,
        read_to: 37,
        answered_to,
        bytes: 30,
        came: Some(ms(1_390)),
    };
    let take_in = |second: Unread| {
        let mut waits = Waits::default();
        let looks = [
            (1_000, vec![], vec![owed(5)]),
            (1_450, vec![second], vec![]),
        ];
        for (at, unread, owed) in looks {
            let look = SocketLook {
                at: ms(at),
                connected: 1,
                unread,
                owed,
            };
            waits.take_in(&look, None);
        }
        (waits.oldest(), waits.over())
    };
    assert_eq!(take_in(unread(12)), (Some(ms(1_390)), [0, 0]));
    // In a pipeline whose first request is not answered yet, it does.
    assert_eq!(take_in(unread(5)), (Some(ms(990)), [1, 0]));
}
