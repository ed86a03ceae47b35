use std::time::Duration;

use super::{ThreadSample, Waits};
use crate::{Answered, GaveUp, Owed, SocketLook, Unread};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const UNREAD: Unread = Unread { socket: 1, read_to: 7, answered_to: 0, bytes: 30, came: None };
const OWED: Owed = Owed { socket: 1, read_to: 7, answered_to: 0, came: Duration::ZERO, is_certain: true };

/// Returns a look that sees nothing.
fn at(milliseconds: u64) -> SocketLook {
    SocketLook { at: ms(milliseconds), ..SocketLook::default() }
}

/// Takes in a look after readings at which the main thread was at rest. When it was busy is not known.
fn take_in(waits: &mut Waits, look: &SocketLook, rests: &[Duration]) -> Vec<(Duration, Duration)> {
    let thread = ThreadSample { at: look.at, busy: None, rests };
    waits.take_in(look, &thread)
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
    let unread = unread.iter().map(|&(socket, read_to, came)| Unread { socket, read_to, came: came.map(ms), ..UNREAD });
    let owed = owed.iter().map(|&(socket, read_to, came)| Owed { socket, read_to, came: ms(came), ..OWED });
    let (unread, owed) = (unread.collect(), owed.collect());
    let look = SocketLook { connected: 9, unread, owed, ..self::at(at) };
    take_in(waits, &look, &Vec::from_iter(rested.map(ms)));
}

#[test]
fn a_request_is_as_old_as_its_data() {
    let mut waits = Waits::default();
    assert!(!waits.is_known());
    let both = [(1, 7, Some(4_950)), (2, 3, Some(4_990))];
    look(&mut waits, 5_000, &both);
    assert_eq!((waits.oldest(), waits.waiting()), (Some(ms(4_950)), 2));
    assert_eq!((waits.over, waits.connected), ([0, 0], 9));
    look(&mut waits, 5_060, &both);
    assert_eq!(waits.over, [1, 0]);
    // Each is counted once for each length.
    look(&mut waits, 6_100, &both);
    look(&mut waits, 6_200, &both);
    assert_eq!((waits.over, waits.longest()), ([2, 2], ms(1_250)));
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
    assert_eq!((waits.oldest(), waits.over), (Some(ms(999)), [1, 0]));
}

#[test]
fn a_client_whose_requests_are_read_one_after_the_other_is_not_old() {
    let mut waits = Waits::default();
    for at in (1_000..=3_000).step_by(100) {
        look(&mut waits, at, &[(1, at as u32, Some(900))]);
    }
    assert_eq!((waits.oldest(), waits.over), (Some(ms(2_950)), [1, 0]));
}

#[test]
fn a_unix_socket_is_older_than_the_look_that_finds_it_by_half_the_time_since_the_last() {
    let mut waits = Waits::default();
    look(&mut waits, 1_000, &[(1, 7, None)]);
    look(&mut waits, 1_150, &[(1, 7, None)]);
    assert_eq!((waits.oldest(), waits.over), (Some(ms(1_000)), [1, 0]));
    look(&mut waits, 1_160, &[(1, 8, None)]);
    assert_eq!(waits.oldest(), Some(ms(1_155)));
}

/// Of a server that is calm but for one pause, the main thread is read ten times a second, and sockets only while it is
/// not at rest.
#[test]
fn a_wait_lasts_until_its_answer_left() {
    let mut waits = Waits::default();
    let rests = [ms(1_000), ms(1_900)];
    let mut take_in =
        |look: SocketLook| (take_in(&mut waits, &look, &rests), waits.seconds(), waits.over, waits.longest());
    take_in(at(1_000));
    let unread = |socket, came| Unread { socket, read_to: 7, answered_to: 9, bytes: 6, came: Some(ms(came)) };
    let both = vec![unread(1, 1_952), unread(2, 1_960)];
    let (_, seconds, ..) = take_in(SocketLook { unread: both.clone(), ..at(2_000) });
    assert_eq!(seconds, 0.0, "it may be short");
    // Counted as it goes on.
    let (_, seconds, over, _) = take_in(SocketLook { unread: both, ..at(2_060) });
    assert_eq!((seconds, over), (0.208, [2, 0]));
    // One connection has been silent since, the other has sent its next request. The third came and left meanwhile.
    let answered = |socket, came, left| Answered { socket, came: ms(came), left: ms(left) };
    let next = SocketLook {
        owed: vec![Owed { socket: 2, read_to: 21, answered_to: 16, came: ms(2_078), is_certain: true }],
        answered: vec![answered(1, 1_952, 2_072)],
        ..at(2_080)
    };
    let (mut felt, seconds, over, longest) = take_in(next);
    felt.sort_unstable();
    assert_eq!(felt[0], (ms(1_952), ms(2_072)));
    assert_eq!(felt[1], (ms(1_960), ms(2_069)), "halfway");
    assert!((seconds - 0.229).abs() < 1e-9, "{seconds}");
    assert_eq!((over, longest), ([2, 0], ms(120)));
    // One more came and was answered between two looks, and one had been answered before it was pushed something.
    let late = vec![answered(3, 2_100, 2_220), answered(4, 1_880, 2_300)];
    for _ in 0..2 {
        let (_, seconds, over, _) = take_in(SocketLook { answered: late.clone(), ..at(2_400) });
        // The short one stands for others.
        assert!((seconds - 0.369).abs() < 1e-9, "{seconds}");
        assert_eq!(over, [3, 0]);
    }
}

/// Ten connections wait for 4 ms, and then do not for 4 ms. Looks are 25 times as long apart.
#[test]
fn short_waits_are_added_up_though_most_are_not_seen() {
    let mut waits = Waits::default();
    for turn in 0..400_u64 {
        let at = 1_000 + turn * 101;
        let unread = (0..10_u64).filter_map(|socket| {
            let age = (at + socket * 3) % 8;
            (age < 4).then_some((socket, (at - age) as u32, Some(at - age)))
        });
        look(&mut waits, at, &Vec::from_iter(unread));
    }
    let truth = 399.0 * 0.101 * 10.0 / 2.0;
    assert!((waits.seconds() / truth - 1.0).abs() < 0.05, "{}", waits.seconds());
    assert_eq!(waits.over, [0, 0]);
}

/// `tcp-keepalive 5`: what acknowledges the probe makes the look uncertain.
#[test]
fn a_keepalive_is_no_answer() {
    let mut waits = Waits::default();
    let owed = |at, is_certain| SocketLook { owed: vec![Owed { came: ms(1_000), is_certain, ..OWED }], ..self::at(at) };
    for at in (1_020..=21_000).step_by(20) {
        take_in(&mut waits, &owed(at, at < 6_000), &[ms(980)]);
    }
    assert_eq!((waits.oldest(), waits.over), (Some(ms(1_000)), [1, 1]));
    assert_eq!(waits.unanswered, ms(20_000));
    assert_eq!(waits.seconds(), 20.0);
    // Nobody who was not owed an answer before is.
    let mut waits = Waits::default();
    take_in(&mut waits, &owed(6_000, false), &[]);
    assert_eq!((waits.waiting(), waits.unanswered), (0, ms(0)));
}

#[test]
fn a_client_that_gave_up_does_not_wait() {
    let mut waits = Waits::default();
    look(&mut waits, 1_000, &[(1, 7, Some(990)), (2, 7, Some(990))]);
    for at in [1_200, 1_400] {
        // Ticks are counted back from each look, and may be off by one.
        let came = Some(ms(990 + at / 1_400 * 4));
        let gave_up = [1, 3].map(|socket| GaveUp { socket, answered_to: 0, came, is_certain: true });
        let look = SocketLook { connected: 1, gave_up: gave_up.to_vec(), ..self::at(at) };
        take_in(&mut waits, &look, &[]);
        assert_eq!((waits.waiting(), waits.given_up), (0, 2));
        assert_eq!(waits.unanswered, ms(at - 990 - at / 1_400 * 4));
    }
    // Others are answered.
    let gave_up = vec![GaveUp { socket: 4, answered_to: 0, came: None, is_certain: true }];
    take_in(&mut waits, &SocketLook { sent: Some(ms(1_590)), gave_up, ..at(1_600) }, &[]);
    assert_eq!((waits.given_up, waits.unanswered), (3, ms(0)));
}

/// 1 is blocked (BLPOP), 2 waits for the answer to what was read, and 3 was answered in the tick in which its request
/// came.
#[test]
fn who_closes_without_having_waited_did_not_give_up() {
    let mut waits = Waits::default();
    look_at_both(&mut waits, 1_000, &[], &[(1, 7, 500)], Some(900));
    look_at_both(&mut waits, 1_100, &[], &[(1, 7, 500), (2, 7, 990)], Some(900));
    let closed = [(1, true, 500), (2, false, 990), (3, false, 990)];
    let gave_up =
        closed.map(|(socket, is_certain, came)| GaveUp { socket, answered_to: 0, came: Some(ms(came)), is_certain });
    for at in [1_200, 1_300] {
        let look = SocketLook { gave_up: gave_up.to_vec(), ..self::at(at) };
        take_in(&mut waits, &look, &[ms(900)]);
        assert_eq!((waits.given_up, waits.unanswered), (1, ms(at - 990)));
    }
}

/// It acknowledges once a second what it has received, and expects nothing.
#[test]
fn a_replica_does_not_wait() {
    let mut waits = Waits::default();
    look_at_both(&mut waits, 1_000, &[], &[(1, 7, 900)], Some(990));
    let script = [(1, 7, Some(1_900))];
    for at in [2_000, 2_500, 4_000] {
        look_at_both(&mut waits, at, &script, &[], Some(990));
        assert_eq!((waits.waiting(), waits.over), (0, [0, 0]), "{at}");
    }
}

/// A command executed before a script in the same turn of the event loop is answered after it.
#[test]
fn a_request_that_was_read_waits_until_it_is_answered() {
    let mut waits = Waits::default();
    let (unread, rested) = ([(1, 7, Some(990))], Some(970));
    look_at_both(&mut waits, 1_000, &unread, &[(2, 5, 980)], rested);
    look_at_both(&mut waits, 1_300, &[], &[(1, 37, 990), (2, 5, 980)], rested);
    assert_eq!((waits.oldest(), waits.waiting()), (Some(ms(980)), 2));
    assert_eq!(waits.over, [1, 0], "the other may block on purpose");
    // The client whose request was unread has an answer, and has since sent another request, which was read.
    look_at_both(&mut waits, 1_400, &[], &[(1, 67, 1_390)], rested);
    assert_eq!((waits.oldest(), waits.over), (Some(ms(1_390)), [2, 0]));
}

#[test]
fn clients_that_block_on_purpose_do_not_wait() {
    // A calm server: its main thread rests.
    let mut waits = Waits::default();
    look_at_both(&mut waits, 1_000, &[], &[(1, 7, 900)], Some(990));
    look_at_both(&mut waits, 60_000, &[], &[(1, 7, 900)], Some(59_990));
    assert_eq!((waits.waiting(), waits.over), (0, [0, 0]));
    // A server that never rests: it answers others that came later.
    let mut waits = Waits::default();
    for at in (1_000..3_000).step_by(20) {
        look_at_both(&mut waits, at, &[], &[(1, 7, 900), (2, at as u32, at - 5), (3, at as u32, at - 3)], None);
    }
    assert_eq!((waits.waiting(), waits.over), (2, [0, 0]));
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
    assert_eq!((waits.longest(), waits.over), (ms(1), [0, 0]));
    // What came before the main thread rested waits since then at most.
    look_at_both(&mut waits, 4_000, &[(2, 7, Some(3_200))], &[], Some(3_950));
    assert_eq!(waits.oldest(), Some(ms(3_950)));
}

/// A client sends its next request as soon as it has the answer to the one before, which the server has read
/// completely.
#[test]
fn a_request_that_was_answered_makes_the_next_no_older() {
    let owed = |answered_to| Owed { socket: 1, read_to: 37, answered_to, came: ms(990), is_certain: true };
    let unread = |answered_to| Unread { socket: 1, read_to: 37, answered_to, bytes: 30, came: Some(ms(1_390)) };
    let take_in = |second: Unread| {
        let mut waits = Waits::default();
        for (at, unread, owed) in [(1_000, vec![], vec![owed(5)]), (1_450, vec![second], vec![])] {
            take_in(&mut waits, &SocketLook { connected: 1, unread, owed, ..self::at(at) }, &[]);
        }
        (waits.oldest(), waits.over)
    };
    assert_eq!(take_in(unread(12)), (Some(ms(1_390)), [0, 0]));
    // In a pipeline whose first request is not answered yet, it does.
    assert_eq!(take_in(unread(5)), (Some(ms(990)), [1, 0]));
}

/// A thousand clients send their next request some 100 ms after an answer. Each second the server stands still for 120
/// ms. In a turn of its loop it reads all that has come, and then answers 20 requests in a millisecond, in another
/// order.
#[test]
fn those_that_are_answered_last_in_a_turn_were_not_passed_over() {
    #[derive(Clone, Copy)]
    struct Client {
        came: u64,
        is_read: bool,
        left: u64,
        sent: u32,
    }
    let mut clients: Vec<Client> =
        (0..1_000).map(|client| Client { came: 0, is_read: true, left: 920 + client / 13, sent: 1 }).collect();
    let (mut waits, mut rests) = (Waits::default(), Vec::new());
    let mut turn: Vec<usize> = Vec::new();
    let (mut truth, mut over, mut next) = (Duration::ZERO, 0, 1_000);
    for now in 1_000..21_000 {
        let stands = now % 1_000 > 880;
        for (number, client) in (0..).zip(&mut clients) {
            if client.left > 0 && client.left + 80 + number * 37 % 41 == now {
                (client.came, client.is_read, client.left) = (now, false, 0);
                client.sent += 1;
            }
        }
        if turn.is_empty() && !stands {
            turn = (0..1_000).filter(|number| clients[*number].left == 0).collect();
            turn.iter().for_each(|number| clients[*number].is_read = true);
        }
        for number in turn.split_off(turn.len().saturating_sub(20)) {
            clients[number].left = now;
            let waited = ms(now - clients[number].came);
            truth += waited;
            over += u64::from(waited >= ms(100));
        }
        if now < next {
            continue;
        }
        let is_calm = clients.iter().all(|client| client.left > 0);
        if is_calm {
            rests.push(ms(now));
        }
        let sent = clients.iter().map(|client| ms(client.left)).max();
        let mut look = SocketLook { connected: 1_000, sent, ..at(now) };
        for (socket, client) in (0..).zip(&clients) {
            let (came, read_to) = (ms(client.came), client.sent - u32::from(!client.is_read));
            let answered_to = client.sent - u32::from(client.left == 0);
            if client.left > client.came + 20 {
                look.answered.push(Answered { socket, came, left: ms(client.left) });
            } else if client.left == 0 && client.is_read {
                look.owed.push(Owed { socket, read_to, answered_to, came, is_certain: true });
            } else if client.left == 0 {
                look.unread.push(Unread { socket, read_to, answered_to, bytes: 6, came: Some(came) });
            }
        }
        take_in(&mut waits, &look, &rests);
        next = now + if is_calm { 97 } else { 45 };
    }
    let ratio = waits.seconds() / truth.as_secs_f64();
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    let ratio = waits.over[0] as f64 / over as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio} of {over}");
}
