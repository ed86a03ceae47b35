use std::time::Duration;

use super::{Burst, BurstKind};

/// Returns a burst like those of GitLab's article.
pub fn of_the_article() -> Burst {
    Burst {
        started: Duration::from_millis(1_700_000_000_250),
        duration: Duration::from_secs(7),
        reclaim: Duration::from_secs(40),
        evicting_calls: 30_000,
        observed: Duration::from_secs(7),
        evicted_keys: Some(250_000),
        commands_per_second: Some(12_000.0),
        stalled: Some(Duration::from_secs(8)),
        stalled_by_evictions: Some(Duration::from_secs(6)),
        clients_waiting_before: Some(2),
        clients_waiting_peak: Some(2_900),
        expired_share_before: Some(0.02),
        stale_ratio_before: Some(0.01),
        expired_held_before: None,
        client_buffers_before: Some(300 << 20),
        client_buffers_peak: Some(900 << 20),
        memory_start: Some(60 << 30),
        memory_peak: Some((60 << 30) + (50 << 20)),
        memory_end: Some(60 << 30),
        memory_after: Some((60 << 30) - (400 << 20)),
        cpu_share: Some(0.98),
        waiting_share: Some(0.0),
        eviction_cpu_share: Some(0.8),
    }
}

#[test]
fn the_bursts_of_the_article_amplify_themselves() {
    let (kind, reason) = of_the_article().kind();
    assert_eq!(kind, BurstKind::SelfAmplifying);
    assert_eq!(
        reason,
        "clients were stalled for 8.0 s; the main thread had work for 98 % of the time, 80 % of it in evictions; \
         clients waiting: 2 at its start, at most 2900; client buffers grew by 600.0 MiB from 300.0 MiB"
    );
    assert_eq!(of_the_article().reclaimed(), Some(400 << 20));
}

fn kind_after(change: fn(&mut Burst)) -> (BurstKind, String) {
    let mut burst = of_the_article();
    change(&mut burst);
    burst.kind()
}

#[test]
fn expiry_was_behind_where_both_estimates_say_so() {
    let behind = |share, stale| {
        let mut burst = of_the_article();
        (burst.expired_share_before, burst.stale_ratio_before) = (share, stale);
        burst.expiry_behind()
    };
    assert_eq!(
        behind(Some(0.42), Some(0.4)).as_deref(),
        Some("42 % of the sampled keys had expired: expiry was already behind when evictions began")
    );
    for (share, stale) in [(None, Some(0.4)), (Some(0.42), None), (Some(0.42), Some(0.05)), (Some(0.1), Some(0.1))] {
        assert_eq!(behind(share, stale), None, "{share:?} {stale:?}");
    }
    // A sample decides.
    let sampled = |held| {
        let mut burst = of_the_article();
        (burst.expired_share_before, burst.stale_ratio_before) = (Some(0.42), Some(0.4));
        burst.expired_held_before = Some(held);
        burst.expiry_behind()
    };
    assert_eq!(
        sampled(0.68).as_deref(),
        Some("68 % of the keys with a TTL had expired and were held: expiry was already behind when evictions began")
    );
    assert_eq!(sampled(0.05), None);
}

#[test]
fn a_burst_that_stalled_nobody_is_plain_whatever_else_it_did() {
    let (kind, why) = kind_after(|burst| burst.stalled = Some(Duration::ZERO));
    assert_eq!((kind, &*why), (BurstKind::Plain, "no client was stalled"));
}

#[test]
fn each_condition_is_needed() {
    let stalling = |change: fn(&mut Burst), why: &str| {
        let felt = "clients were stalled for 8.0 s, 6.0 s of that by evictions; ";
        assert_eq!(kind_after(change), (BurstKind::Stalling, format!("{felt}{why}")));
    };
    let why = "the main thread had work for 40 % of the time, 80 % of it in evictions";
    stalling(|burst| burst.cpu_share = Some(0.4), why);
    let why = "the main thread had work for 98 % of the time, 10 % of it in evictions";
    stalling(|burst| burst.eviction_cpu_share = Some(0.1), why);
    let why = "clients waiting: 50 at its start, at most 50";
    let closed_loop = |burst: &mut Burst| {
        (burst.clients_waiting_before, burst.clients_waiting_peak) = (Some(50), Some(50));
    };
    stalling(closed_loop, why);
    let why = "clients waiting: 1 at its start, at most 5";
    let few = |burst: &mut Burst| {
        (burst.clients_waiting_before, burst.clients_waiting_peak) = (Some(1), Some(5));
    };
    stalling(few, why);
    let why = "client buffers grew by 0.0 MiB from 300.0 MiB";
    let change = |burst: &mut Burst| burst.client_buffers_peak = burst.client_buffers_before;
    stalling(change, why);
    let why = "client buffers grew by 1.0 MiB from 899.0 MiB";
    stalling(|burst| burst.client_buffers_before = Some(899 << 20), why);
    let bulk_load = |burst: &mut Burst| {
        burst.stalled_by_evictions = Some(Duration::from_secs(3));
    };
    let (kind, why) = kind_after(bulk_load);
    assert_eq!(kind, BurstKind::Stalling);
    assert_eq!(why, "clients were stalled for 8.0 s, 3.0 s of that by evictions");
    // However short it is.
    let short = kind_after(|burst| {
        burst.duration = Duration::from_millis(90);
        burst.client_buffers_peak = None;
    });
    assert_eq!(short.0, BurstKind::Stalling);
}

#[test]
fn what_a_neighbour_did_is_no_burst_that_feeds_on_itself() {
    let beside = |burst: &mut Burst| {
        (burst.cpu_share, burst.waiting_share) = (Some(0.4), Some(0.58));
        burst.stalled_by_evictions = Some(Duration::ZERO);
    };
    let (kind, why) = kind_after(beside);
    assert_eq!(kind, BurstKind::Plain);
    assert_eq!(why, "clients were stalled for 8.0 s, but not by evictions");
    // Also if everything else looks as if it had.
    let (kind, why) = kind_after(|burst| burst.stalled_by_evictions = Some(Duration::ZERO));
    assert_eq!(kind, BurstKind::Plain);
    assert_eq!(why, "clients were stalled for 8.0 s, but not by evictions");
}

#[test]
fn where_what_decides_is_missing_the_kind_is_not_known() {
    let unknown = |change: fn(&mut Burst), why: &str| {
        assert_eq!(kind_after(change), (BurstKind::Unknown, why.to_owned()));
    };
    unknown(|burst| burst.stalled = None, "not known: how long clients waited");
    let change = |burst: &mut Burst| {
        burst.stalled_by_evictions = Some(Duration::ZERO);
        burst.cpu_share = None;
        burst.client_buffers_before = None;
    };
    unknown(change, "not known: the main thread's CPU time; client buffers");
}
