//! One finished burst, and its kind.
//!
//! A burst feeds on itself when three things come together (GitLab, "How we diagnosed and resolved Redis latency spikes
//! with BPF and other tools"). Memory is saturated, so calls evict. They take the CPU time that the main thread lacks.
//! So more and more requests wait, and their buffers fill the memory that is being freed.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A main thread that is busy for at least this share of its time has none to spare. GitLab's was at 100 %; a burst's
/// first and last moments are less busy.
const SATURATED_CPU: f64 = 0.9;
/// Evicting calls that take less than this share of the main thread's CPU time are not why it lacks CPU time.
const LARGE_SHARE: f64 = 0.2;
/// More and more requests wait if they wait in at least this many times as many connections as before …
const GROWN_WAITING: u64 = 2;
/// … and in at least this many more: the three conditions of the article need many clients.
const GROWN_WAITING_CLIENTS: u64 = 10;
/// Client buffers have grown if they grew by at least this part of what they were … The lab saw them double.
const GROWN_BUFFERS: f64 = 0.1;
/// … and by at least this many bytes: a few clients' buffers are no backlog.
const GROWN_BUFFERS_BYTES: f64 = (1 << 20) as f64;

/// Expiry was behind if more than this share of the sampled keys had expired. Redis itself accepts this share at
/// `active-expire-effort` 1 (`ACTIVE_EXPIRE_CYCLE_ACCEPTABLE_STALE`, expire.c; 0.01 at 10): a cycle goes on with a
/// database while more of a sample than that has expired, and leaves more behind only at its time limit.
const EXPIRY_BEHIND: f64 = 0.1;

/// The kind of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BurstKind {
    /// It stalled clients, mostly by evictions, and fed on itself: evicting calls took the CPU time that the main
    /// thread lacked, more and more requests waited, and client buffers grew.
    SelfAmplifying,
    /// Its evicting calls stalled clients.
    Stalling,
    /// Its evicting calls stalled no client.
    Plain,
    /// Too little is known to decide.
    Unknown,
}

impl BurstKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::SelfAmplifying, Self::Stalling, Self::Plain, Self::Unknown];
}

/// The spelling of the label `kind`.
impl fmt::Display for BurstKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A finished burst. A value that is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Burst {
    /// When its first evicting call passed the goal site: a monotonic time, until [`Self::dated`] makes it one since
    /// 1970.
    #[serde(rename = "started_unix_seconds", with = "seconds")]
    pub started: Duration,
    /// From then to the end of its last evicting call.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    /// From that end until four fifths of the fall of memory were over, or the next burst began; zero if memory did not
    /// fall at all.
    #[serde(rename = "reclaim_seconds", with = "seconds")]
    pub reclaim: Duration,
    /// Evicting calls that were observed in it.
    pub evicting_calls: u64,
    /// For how long they were observed.
    #[serde(rename = "observed_seconds", with = "seconds")]
    pub observed: Duration,
    /// Keys that were evicted in it.
    pub evicted_keys: Option<u64>,
    /// Commands a second in the burst.
    pub commands_per_second: Option<f64>,
    /// For how long clients were stalled, by whatever cause, until the end of the reclaim.
    #[serde(rename = "stalled_seconds", with = "seconds::optional")]
    pub stalled: Option<Duration>,
    /// For how long evicting calls stalled them.
    #[serde(rename = "stalled_by_evictions_seconds", with = "seconds::optional")]
    pub stalled_by_evictions: Option<Duration>,
    /// Connections in which requests waited at its start.
    pub clients_waiting_before: Option<u64>,
    /// The most of these until the end of the reclaim.
    pub clients_waiting_peak: Option<u64>,
    /// The expired share of the keys that expire cycles sampled in the minute before it.
    pub expired_share_before: Option<f64>,
    /// The server's own estimate, just before it, of the share of keys with a time to live that have expired and are
    /// still held.
    pub stale_ratio_before: Option<f64>,
    /// That share by the last sample before it.
    pub expired_held_before: Option<f64>,
    /// Client buffers at its start, bytes.
    #[serde(rename = "client_buffers_before_bytes")]
    pub client_buffers_before: Option<u64>,
    /// Highest client buffers until the end of the reclaim, bytes: the server's count lags behind.
    #[serde(rename = "client_buffers_peak_bytes")]
    pub client_buffers_peak: Option<u64>,
    /// Memory tracked by the allocator at its start, bytes.
    #[serde(rename = "memory_start_bytes")]
    pub memory_start: Option<u64>,
    /// Highest memory in the burst, bytes.
    #[serde(rename = "memory_peak_bytes")]
    pub memory_peak: Option<u64>,
    /// Memory at its last evicting call, bytes.
    #[serde(rename = "memory_end_bytes")]
    pub memory_end: Option<u64>,
    /// Lowest memory until it stopped falling, bytes.
    #[serde(rename = "memory_after_bytes")]
    pub memory_after: Option<u64>,
    /// CPU time of the main thread in which it worked, as a share of the burst.
    #[serde(rename = "main_thread_cpu_share")]
    pub cpu_share: Option<f64>,
    /// How long the main thread was ready to run and had no CPU, as a share of the burst.
    #[serde(rename = "main_thread_waiting_share")]
    pub waiting_share: Option<f64>,
    /// CPU time inside evicting calls, as a share of the main thread's while they were observed.
    pub eviction_cpu_share: Option<f64>,
}

/// Whether a condition holds, and what was seen of it, in words.
type Finding = (bool, String);

impl Burst {
    /// Returns the burst with the time since 1970 at which it started; `since_1970` is added to a monotonic time.
    #[must_use]
    pub fn dated(&self, since_1970: Duration) -> Self {
        Self { started: since_1970.saturating_add(self.started), ..self.clone() }
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

    /// Returns, in words, that expiry was behind when the burst began, if it is known to have been. A sample decides,
    /// if there was one. Keys that expire all at once make the share of those that cycles find high for a moment,
    /// though the next cycles delete them. So the server's own estimate must be high, too: it follows in some twenty
    /// cycles.
    pub fn expiry_behind(&self) -> Option<String> {
        let (share, estimate, whose) = match self.expired_held_before {
            Some(held) => (held, held, "keys with a TTL had expired and were held"),
            None => (self.expired_share_before?, self.stale_ratio_before?, "sampled keys had expired"),
        };
        let percent = share * 100.0;
        (share > EXPIRY_BEHIND && estimate > EXPIRY_BEHIND)
            .then(|| format!("{percent:.0} % of the {whose}: expiry was already behind when evictions began"))
    }

    /// Returns its kind, and the reason in words.
    pub fn kind(&self) -> (BurstKind, String) {
        let (Some(stalled), Some(by_evictions)) = (self.stalled, self.stalled_by_evictions) else {
            return (BurstKind::Unknown, "not known: how long clients waited".to_owned());
        };
        if stalled.is_zero() {
            return (BurstKind::Plain, "no client was stalled".to_owned());
        }
        let felt = format!("clients were stalled for {:.1} s", stalled.as_secs_f64());
        // Something else that stalled clients for longer, such as a bulk load, would have done so without evictions.
        let is_by_evictions = by_evictions * 2 >= stalled;
        let findings = [
            (self.cpu(), "the main thread's CPU time"),
            (self.waiting(), "how many clients waited"),
            (self.buffers(), "client buffers"),
        ];
        let [holding, missing] = [true, false].map(|holds| {
            let findings = findings.iter().filter_map(|(finding, _)| finding.as_ref());
            findings.filter(|finding| finding.0 == holds).map(|finding| finding.1.as_str()).collect::<Vec<_>>()
        });
        if holding.len() == findings.len() && is_by_evictions {
            let why = holding.join("; ");
            (BurstKind::SelfAmplifying, format!("{felt}; {why}"))
        } else if !by_evictions.is_zero() {
            let by_evictions = by_evictions.as_secs_f64();
            let mut why = vec![format!("{felt}, {by_evictions:.1} s of that by evictions")];
            why.extend(missing.iter().map(|text| (*text).to_owned()));
            (BurstKind::Stalling, why.join("; "))
        } else {
            let unknown = findings.iter().filter(|finding| finding.0.is_none());
            let unknown: Vec<_> = unknown.map(|(_, what)| *what).collect();
            if missing.is_empty() && !unknown.is_empty() {
                return (BurstKind::Unknown, format!("not known: {}", unknown.join("; ")));
            }
            (BurstKind::Plain, format!("{felt}, but not by evictions"))
        }
    }

    /// Returns whether evicting calls took the CPU time that the main thread lacked.
    fn cpu(&self) -> Option<Finding> {
        let (cpu, waiting) = (self.cpu_share?, self.waiting_share?);
        let evicting = self.eviction_cpu_share? * cpu;
        let busy = (cpu + waiting).min(1.0);
        let text = format!(
            "the main thread had work for {:.0} % of the time, {:.0} % of it in evictions",
            busy * 100.0,
            evicting / busy.max(f64::MIN_POSITIVE) * 100.0
        );
        let is_large = evicting >= LARGE_SHARE * cpu && evicting >= waiting;
        Some((busy >= SATURATED_CPU && is_large, text))
    }

    /// Returns whether more and more requests waited.
    fn waiting(&self) -> Option<Finding> {
        let (before, peak) = (self.clients_waiting_before?, self.clients_waiting_peak?);
        let has_grown = peak >= before * GROWN_WAITING && peak >= before + GROWN_WAITING_CLIENTS;
        Some((has_grown, format!("clients waiting: {before} at its start, at most {peak}")))
    }

    fn buffers(&self) -> Option<Finding> {
        let growth = self.client_buffer_growth()? as f64;
        let before = self.client_buffers_before? as f64;
        let mebi = |bytes: f64| bytes / f64::from(1 << 20);
        let (by, from) = (mebi(growth), mebi(before));
        let has_grown = growth >= GROWN_BUFFERS_BYTES && growth >= before * GROWN_BUFFERS;
        Some((has_grown, format!("client buffers grew by {by:.1} MiB from {from:.1} MiB")))
    }
}

/// Durations as seconds in JSON, as in all other output.
mod seconds {
    use super::{Deserialize as _, Deserializer, Duration, Serialize as _, Serializer, de};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        time.as_secs_f64().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(de::Error::custom)
    }

    /// The same for durations that may not be known.
    pub mod optional {
        use serde::{Deserialize as _, Serialize as _};

        use super::{Deserializer, Duration, Serializer, de};

        pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
            time.map(|time| time.as_secs_f64()).serialize(to)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
            Option::<f64>::deserialize(from)?.map(Duration::try_from_secs_f64).transpose().map_err(de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Burst, BurstKind};

    fn of_the_article() -> Burst {
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

    type Change = fn(&mut Burst);

    fn kind_after(change: Change) -> (BurstKind, String) {
        let mut burst = of_the_article();
        change(&mut burst);
        burst.kind()
    }

    #[test]
    fn expiry_was_behind_where_both_estimates_say_so() {
        let behind = |expired_share_before, stale_ratio_before, expired_held_before| {
            let estimates = Burst { expired_share_before, stale_ratio_before, expired_held_before, ..Burst::default() };
            estimates.expiry_behind()
        };
        let text = |share: &str| Some(format!("{share}: expiry was already behind when evictions began"));
        assert_eq!(behind(Some(0.42), Some(0.4), None), text("42 % of the sampled keys had expired"));
        for (share, stale) in [(None, Some(0.4)), (Some(0.42), None), (Some(0.42), Some(0.05)), (Some(0.1), Some(0.1))]
        {
            assert_eq!(behind(share, stale, None), None, "{share:?} {stale:?}");
        }
        // A sample decides.
        let sampled = |held| behind(Some(0.42), Some(0.4), Some(held));
        assert_eq!(sampled(0.68), text("68 % of the keys with a TTL had expired and were held"));
        assert_eq!(sampled(0.05), None);
    }

    #[test]
    fn a_burst_that_stalled_nobody_is_plain_whatever_else_it_did() {
        let (kind, why) = kind_after(|burst| burst.stalled = Some(Duration::ZERO));
        assert_eq!((kind, &*why), (BurstKind::Plain, "no client was stalled"));
    }

    #[test]
    fn each_condition_is_needed() {
        let changes: [(Change, &str); 7] = [
            (
                |burst| burst.cpu_share = Some(0.4),
                "the main thread had work for 40 % of the time, 80 % of it in evictions",
            ),
            (
                |burst| burst.eviction_cpu_share = Some(0.1),
                "the main thread had work for 98 % of the time, 10 % of it in evictions",
            ),
            // A closed loop.
            (
                |burst| (burst.clients_waiting_before, burst.clients_waiting_peak) = (Some(50), Some(50)),
                "clients waiting: 50 at its start, at most 50",
            ),
            (
                |burst| (burst.clients_waiting_before, burst.clients_waiting_peak) = (Some(1), Some(5)),
                "clients waiting: 1 at its start, at most 5",
            ),
            (
                |burst| burst.client_buffers_peak = burst.client_buffers_before,
                "client buffers grew by 0.0 MiB from 300.0 MiB",
            ),
            (|burst| burst.client_buffers_before = Some(899 << 20), "client buffers grew by 1.0 MiB from 899.0 MiB"),
            // However short it is.
            (
                |burst| (burst.duration, burst.clients_waiting_peak) = (Duration::from_millis(90), Some(3)),
                "clients waiting: 2 at its start, at most 3",
            ),
        ];
        for (change, why) in changes {
            let felt = "clients were stalled for 8.0 s, 6.0 s of that by evictions; ";
            assert_eq!(kind_after(change), (BurstKind::Stalling, format!("{felt}{why}")));
        }
        let bulk_load = kind_after(|burst| burst.stalled_by_evictions = Some(Duration::from_secs(3)));
        let why = "clients were stalled for 8.0 s, 3.0 s of that by evictions";
        assert_eq!(bulk_load, (BurstKind::Stalling, why.to_owned()));
        let too_little_known = kind_after(|burst| burst.client_buffers_peak = None);
        assert_eq!(too_little_known.0, BurstKind::Stalling);
    }

    #[test]
    fn what_a_neighbour_did_is_no_burst_that_feeds_on_itself() {
        let changes: [Change; 2] = [
            |burst| (burst.cpu_share, burst.waiting_share) = (Some(0.4), Some(0.58)),
            // Also if everything else looks as if it had.
            |_| {},
        ];
        for change in changes {
            let mut beside = Burst { stalled_by_evictions: Some(Duration::ZERO), ..of_the_article() };
            change(&mut beside);
            let why = "clients were stalled for 8.0 s, but not by evictions".to_owned();
            assert_eq!(beside.kind(), (BurstKind::Plain, why));
        }
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
}
