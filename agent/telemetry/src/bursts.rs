//! One finished burst, and its kind.
//!
//! A burst feeds on itself when three things come together (GitLab, "How we diagnosed and resolved Redis latency spikes with BPF and
//! other tools"). Memory is
//! saturated, so calls evict. The CPU of the main thread is saturated. So fewer commands are answered
//! than arrive, and their buffers fill the memory that is being freed.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// From this share of its time on, the main thread has no CPU time left to give. GitLab's was
/// at 100 %; a burst's first and last moments are less busy.
const SATURATED_CPU: f64 = 0.9;
/// Throughput has fallen if in some second of the burst it is at most this part of the usual one. In
/// GitLab's case it fell to 0.2, in the lab to 0.1; ordinary traffic moves by some percent from one
/// second to the next. The mean of a burst does not tell: one whose backlog is worked off while the last
/// evictions are made has had twice the usual throughput by its end (lab: 0.1 to 0.8 in five bursts).
const FALLEN_THROUGHPUT: f64 = 0.7;
/// A burst whose slowest second has more than this many times the rate before has another load than that time:
/// whether it has less than its own load asks for, the rate before does not tell.
const OTHER_LOAD: f64 = 2.0;
/// Client buffers have grown when they did so by this part of what they were … The lab
/// saw them double.
const GROWN_BUFFERS: f64 = 0.1;
/// … and by at least as many bytes: a few clients' buffers are no backlog.
const GROWN_BUFFERS_BYTES: f64 = (1 << 20) as f64;
/// A shorter burst cannot have fed on itself: the backlog of GitLab's bursts took seconds to
/// build up, and the server counts its client buffers about once a second. Nor has it an impact that could be measured.
const LEAST_DURATION: Duration = Duration::from_millis(500);

/// Expiry was behind where more than this share of the sampled keys had expired. It is what Redis itself puts up with
/// at `active-expire-effort` 1 (`ACTIVE_EXPIRE_CYCLE_ACCEPTABLE_STALE`, expire.c; 0.01 at 10): a cycle goes on with a
/// database while more of a sample than that has expired, and leaves more behind only at its time limit.
const EXPIRY_BEHIND: f64 = 0.1;

/// The kind of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstKind {
    /// The main thread's CPU was saturated, throughput fell, and client buffers grew.
    SelfAmplifying,
    /// One of these was not so.
    Plain,
    /// One of these is not known, and none of the others was not so.
    Unknown,
}

impl BurstKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::SelfAmplifying, Self::Plain, Self::Unknown];
}

/// The spelling of the label `kind`.
impl fmt::Display for BurstKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SelfAmplifying => "self_amplifying",
            Self::Plain => "plain",
            Self::Unknown => "unknown",
        })
    }
}

/// A finished burst. What is not known is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Its first evicting call passed the goal site, as time since 1970.
    pub started: Duration,
    /// From there to the end of its last evicting call.
    pub duration: Duration,
    /// From there to when memory had fallen but for a fifth, or the next burst began; zero where it did
    /// not fall at all.
    pub reclaim: Duration,
    /// Evicting calls that were observed in it.
    pub evicting_calls: u64,
    /// For how long they were observed.
    pub observed: Duration,
    /// Keys that were evicted in it.
    pub evicted_keys: Option<u64>,
    /// Commands a second in the last minute without burst or reclaim.
    pub commands_per_second_before: Option<f64>,
    /// Commands a second from the server's start to that of the burst.
    pub commands_per_second_since_start: Option<f64>,
    /// Commands a second in the burst.
    pub commands_per_second_during: Option<f64>,
    /// Commands a second in its slowest second; in all of it where it was shorter.
    pub commands_per_second_slowest: Option<f64>,
    /// Of the keys that expire cycles sampled in the last minute before it, the share that had expired.
    pub expired_share_before: Option<f64>,
    /// The server's own estimate, just before it, of the share of keys with a time to live that have expired and are
    /// still held.
    pub stale_ratio_before: Option<f64>,
    /// Client buffers at its start, bytes.
    pub client_buffers_before: Option<u64>,
    /// Highest client buffers until the end of the reclaim, bytes: the server's count lags behind.
    pub client_buffers_peak: Option<u64>,
    /// Memory tracked by the allocator at its start, bytes.
    pub memory_start: Option<u64>,
    /// Highest in the burst, bytes.
    pub memory_peak: Option<u64>,
    /// At its last evicting call, bytes.
    pub memory_end: Option<u64>,
    /// Lowest until it fell no more, bytes.
    pub memory_after: Option<u64>,
    /// CPU time of the main thread, as a share of the burst.
    pub cpu_share: Option<f64>,
    /// How long the main thread was ready to run and had no CPU, as a share of the burst.
    pub waiting_share: Option<f64>,
    /// CPU time inside evicting calls, as a share of the main thread's while they were observed.
    pub eviction_cpu_share: Option<f64>,
}

impl Burst {
    /// Tells whether it was too short to have an impact that could be measured.
    pub fn is_short(&self) -> bool {
        self.duration < LEAST_DURATION
    }

    /// Returns commands a second in the last minute without burst or reclaim, unless the load was another one then.
    fn rate_before(&self) -> Option<f64> {
        let slowest = self.commands_per_second_slowest?;
        let is_same = |rate: &f64| *rate > 0.0 && slowest <= OTHER_LOAD * rate;
        self.commands_per_second_before.filter(is_same)
    }

    /// Returns commands a second in the burst by those before; `None` too if the load before was another one.
    pub fn throughput_ratio(&self) -> Option<f64> {
        Some(self.commands_per_second_during? / self.rate_before()?)
    }

    /// Returns by how much client buffers grew, bytes.
    pub fn client_buffer_growth(&self) -> Option<u64> {
        let before = self.client_buffers_before?;
        Some(self.client_buffers_peak?.saturating_sub(before))
    }

    /// Returns by how much memory fell after the last evicting call, bytes.
    pub fn reclaimed(&self) -> Option<u64> {
        Some(self.memory_end?.saturating_sub(self.memory_after?))
    }

    /// Says, for people, that expiry was behind when it began, where that is known. Keys that expire all at once
    /// make the share high for a moment, though the next cycles delete them. So the server's own estimate has to be high, too:
    /// it follows in some twenty cycles.
    pub fn expiry_behind(&self) -> Option<String> {
        let share = self.expired_share_before?;
        let is_behind = share > EXPIRY_BEHIND && self.stale_ratio_before? > EXPIRY_BEHIND;
        is_behind.then(|| {
            format!(
                "{:.0} % of the keys sampled had expired: expiry was behind when evictions began",
                share * 100.0
            )
        })
    }

    /// Returns its kind, and why, for people.
    pub fn kind(&self) -> (BurstKind, String) {
        let findings = [
            (Some(self.length()), ""),
            (self.cpu(), "the main thread's CPU time"),
            (self.throughput(), "throughput before or in it"),
            (self.buffers(), "client buffers"),
        ];
        let that = |holds: bool| {
            let findings = findings.iter().filter_map(|(finding, _)| finding.as_ref());
            let decisive = findings.filter(move |finding| finding.0 == holds);
            decisive
                .map(|finding| finding.1.clone())
                .collect::<Vec<_>>()
        };
        let unknown = findings.iter().filter(|finding| finding.0.is_none());
        let unknown: Vec<_> = unknown.map(|(_, what)| *what).collect();
        let contradicting = that(false);
        if !contradicting.is_empty() {
            (BurstKind::Plain, contradicting.join("; "))
        } else if !unknown.is_empty() {
            let what = unknown.join("; ");
            (BurstKind::Unknown, format!("not known: {what}"))
        } else {
            (BurstKind::SelfAmplifying, that(true).join("; "))
        }
    }

    fn length(&self) -> (bool, String) {
        let text = format!("evictions went on for {:.1} s", self.duration.as_secs_f64());
        (!self.is_short(), text)
    }

    fn cpu(&self) -> Option<(bool, String)> {
        // A thread that has to wait for a CPU has no CPU time left either.
        let busy = self.cpu_share? + self.waiting_share.unwrap_or(0.0);
        let percent = busy.min(1.0) * 100.0;
        let text = format!("the main thread had work for {percent:.0} % of the time");
        let is_saturated = busy >= SATURATED_CPU;
        (is_saturated || self.waiting_share.is_some()).then_some((is_saturated, text))
    }

    fn throughput(&self) -> Option<(bool, String)> {
        let slowest = self.commands_per_second_slowest?;
        let compare = |rate: f64, with: &str| {
            let percent = slowest / rate * 100.0;
            let text = format!("throughput in its slowest second was {percent:.0} % of {with}");
            (slowest <= FALLEN_THROUGHPUT * rate, text)
        };
        let of_late = self
            .rate_before()
            .map(|rate| compare(rate, "the minute before"));
        of_late.or_else(|| {
            // A server that had little to do for days, and then much, has not kept its throughput by having more than
            // before. So that rate shows a fall only, and where there was no other.
            let rate = self
                .commands_per_second_since_start
                .filter(|rate| *rate > 0.0)?;
            Some(compare(rate, "the mean since the server started")).filter(|finding| finding.0)
        })
    }

    fn buffers(&self) -> Option<(bool, String)> {
        let growth = self.client_buffer_growth()? as f64;
        let before = self.client_buffers_before? as f64;
        let mebi = |bytes: f64| bytes / f64::from(1 << 20);
        let (by, from) = (mebi(growth), mebi(before));
        let text = format!("client buffers grew by {by:.1} MiB from {from:.1} MiB");
        let has_grown = growth >= GROWN_BUFFERS_BYTES && growth >= before * GROWN_BUFFERS;
        Some((has_grown, text))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::{Burst, BurstKind};

    /// Returns a burst as GitLab's article describes them.
    pub fn of_the_article() -> Burst {
        Burst {
            started: Duration::from_millis(1_700_000_000_250),
            duration: Duration::from_secs(7),
            reclaim: Duration::from_secs(40),
            evicting_calls: 30_000,
            observed: Duration::from_secs(7),
            evicted_keys: Some(250_000),
            commands_per_second_before: Some(60_000.0),
            commands_per_second_since_start: Some(40_000.0),
            commands_per_second_during: Some(12_000.0),
            commands_per_second_slowest: Some(9_000.0),
            expired_share_before: Some(0.02),
            stale_ratio_before: Some(0.01),
            client_buffers_before: Some(300 << 20),
            client_buffers_peak: Some(900 << 20),
            memory_start: Some(60 << 30),
            memory_peak: Some((60 << 30) + (50 << 20)),
            memory_end: Some(60 << 30),
            memory_after: Some((60 << 30) - (400 << 20)),
            cpu_share: Some(0.98),
            waiting_share: None,
            eviction_cpu_share: Some(0.8),
        }
    }

    #[test]
    fn the_bursts_of_the_article_amplify_themselves() {
        let (kind, reason) = of_the_article().kind();
        assert_eq!(kind, BurstKind::SelfAmplifying);
        assert_eq!(
            reason,
            "evictions went on for 7.0 s; the main thread had work for 98 % of the time; throughput in \
             its slowest second was 15 % of the minute before; client buffers grew by 600.0 MiB from 300.0 MiB"
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
            Some("42 % of the keys sampled had expired: expiry was behind when evictions began")
        );
        for (share, stale) in [
            (None, Some(0.4)),
            (Some(0.42), None),
            (Some(0.42), Some(0.05)),
            (Some(0.1), Some(0.1)),
        ] {
            assert_eq!(behind(share, stale), None, "{share:?} {stale:?}");
        }
    }

    #[test]
    fn each_condition_is_needed() {
        let plain = |change: fn(&mut Burst), why: &str| {
            assert_eq!(kind_after(change), (BurstKind::Plain, why.to_owned()));
        };
        let why = "evictions went on for 0.1 s";
        plain(|burst| burst.duration = Duration::from_millis(100), why);
        let why = "the main thread had work for 40 % of the time";
        let change =
            |burst: &mut Burst| (burst.cpu_share, burst.waiting_share) = (Some(0.4), Some(0.0));
        plain(change, why);
        let why = "throughput in its slowest second was 98 % of the minute before";
        plain(
            |burst| burst.commands_per_second_slowest = Some(59_000.0),
            why,
        );
        let why = "client buffers grew by 0.0 MiB from 300.0 MiB";
        plain(
            |burst| burst.client_buffers_peak = burst.client_buffers_before,
            why,
        );
        let why = "client buffers grew by 1.0 MiB from 899.0 MiB";
        plain(|burst| burst.client_buffers_before = Some(899 << 20), why);
        // What is known decides, whatever is not.
        let why = "client buffers grew by 0.0 MiB from 300.0 MiB";
        let change = |burst: &mut Burst| {
            burst.cpu_share = None;
            burst.client_buffers_peak = burst.client_buffers_before;
        };
        plain(change, why);
    }

    #[test]
    fn where_evidence_is_missing_the_kind_is_not_known() {
        let unknown = |change: fn(&mut Burst), why: &str| {
            assert_eq!(kind_after(change), (BurstKind::Unknown, why.to_owned()));
        };
        let cpu = "not known: the main thread's CPU time";
        unknown(|burst| burst.cpu_share = None, cpu);
        let change = |burst: &mut Burst| (burst.cpu_share, burst.waiting_share) = (Some(0.5), None);
        unknown(change, cpu);
        let buffers = "not known: client buffers";
        unknown(|burst| burst.client_buffers_before = None, buffers);
        let throughput = "not known: throughput before or in it";
        unknown(|burst| burst.commands_per_second_slowest = None, throughput);
        let change = |burst: &mut Burst| {
            burst.commands_per_second_before = None;
            burst.commands_per_second_since_start = None;
            burst.cpu_share = None;
        };
        let why = "not known: the main thread's CPU time; throughput before or in it";
        unknown(change, why);
    }

    /// Commands a second in the last minute before, since the start, and in the slowest second; and the kind.
    fn kind_by(before: Option<f64>, since_start: f64, slowest: f64) -> BurstKind {
        let burst = Burst {
            commands_per_second_before: before,
            commands_per_second_since_start: Some(since_start),
            commands_per_second_slowest: Some(slowest),
            ..of_the_article()
        };
        burst.kind().0
    }

    #[test]
    fn a_servers_whole_life_shows_a_fall_only() {
        let fallen = BurstKind::SelfAmplifying;
        assert_eq!(kind_by(None, 40_000.0, 9_000.0), fallen);
        // Days without work, and then a load that is not answered.
        assert_eq!(kind_by(None, 50.0, 9_000.0), BurstKind::Unknown);
        // Where the minute before tells, the life before does not count.
        assert_eq!(kind_by(Some(9_500.0), 40_000.0, 9_000.0), BurstKind::Plain);
    }

    #[test]
    fn a_load_that_has_just_begun_has_no_rate_before() {
        assert_eq!(kind_by(Some(4.0), 3.0, 9_000.0), BurstKind::Unknown);
        assert_eq!(kind_by(Some(0.0), 3.0, 9_000.0), BurstKind::Unknown);
        let burst = Burst {
            commands_per_second_before: Some(4.0),
            ..of_the_article()
        };
        assert_eq!(burst.throughput_ratio(), None);
    }

    #[test]
    fn waiting_for_a_cpu_is_being_busy() {
        let burst = Burst {
            cpu_share: Some(0.5),
            waiting_share: Some(0.48),
            ..of_the_article()
        };
        assert_eq!(burst.kind().0, BurstKind::SelfAmplifying);
    }
}
