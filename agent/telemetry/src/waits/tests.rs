use std::time::Duration;

use super::Waits;
use crate::{SocketLook, Unread};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Connections with unread data: which, how far it was read, and when data last came.
fn look(waits: &mut Waits, at: u64, unread: &[(u64, u32, Option<u64>)]) {
    let unread = unread.iter().map(|(socket, read_to, came)| Unread {
        socket: *socket,
        read_to: *read_to,
        bytes: 30,
        came: came.map(ms),
    });
    waits.take_in(&SocketLook {
        at: ms(at),
        connected: 9,
        unread: unread.collect(),
    });
}

#[test]
fn a_request_is_as_old_as_its_data() {
    let mut waits = Waits::default();
    assert!(!waits.is_known());
    look(
        &mut waits,
        5_000,
        &[(1, 7, Some(4_950)), (2, 3, Some(4_990))],
    );
    assert_eq!((waits.oldest(), waits.waiting()), (Some(ms(4_950)), 2));
    assert_eq!((waits.over(), waits.connected()), ([0, 0], 9));
    look(
        &mut waits,
        5_060,
        &[(1, 7, Some(4_950)), (2, 3, Some(4_990))],
    );
    assert_eq!(waits.over(), [1, 0]);
    // Each is counted once, at each length.
    look(
        &mut waits,
        6_100,
        &[(1, 7, Some(4_950)), (2, 3, Some(4_990))],
    );
    look(
        &mut waits,
        6_200,
        &[(1, 7, Some(4_950)), (2, 3, Some(4_990))],
    );
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
    look(
        &mut waits,
        2_000,
        &[(1, 7, Some(1_990)), (2, 7, Some(1_990))],
    );
    look(
        &mut waits,
        2_500,
        &[(1, 7, Some(1_990)), (2, 7, Some(1_990))],
    );
    look(&mut waits, 2_600, &[]);
    // (0 + 2) / 2 for 1 s, 2 for 0.5 s, (2 + 0) / 2 for 0.1 s.
    assert!((waits.seconds() - 2.1).abs() < 1e-9, "{}", waits.seconds());
}
