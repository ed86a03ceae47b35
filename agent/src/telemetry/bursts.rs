//! One finished burst, and its kind.
//!
//! A burst feeds on itself when three things come together (the article's finding). Memory is
//! saturated, so calls evict. The CPU of the main thread is saturated. So fewer commands are answered
//! than arrive, and their buffers fill the memory that is being freed.

use std::fmt;
use std::time::Duration;

/// From this share of its time on, the main thread has no CPU time left to give. The article's was
/// at 100 %; a burst's first and last moments are less busy. To be confirmed by the lab.
const SATURATED_CPU: f64 = 0.9;
/// Throughput has fallen if in some second of the burst it is at most this part of the usual one. In
/// the article it fell to 0.2, in the lab to 0.1; ordinary traffic moves by some percent from one
/// second to the next. The mean of a burst does not tell: one whose backlog is worked off while the last
/// evictions are made has had twice the usual throughput by its end (lab: 0.1 to 0.8 in five bursts).
const FALLEN_THROUGHPUT: f64 = 0.7;
/// Client buffers have grown when they did so by this part of what they were … The by-hand run of
/// the lab saw them double. To be confirmed by the lab.
const GROWN_BUFFERS: f64 = 0.1;
/// … and by at least as many bytes: a few clients' buffers are no backlog.
const GROWN_BUFFERS_BYTES: f64 = (1 << 20) as f64;
/// A shorter burst cannot have fed on itself: the backlog of the article's bursts took seconds to
/// build up, and the server counts its client buffers about once a second.
const LEAST_DURATION: Duration = Duration::from_millis(500);

/// The kind of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstKind {
    /// The main thread's CPU was saturated, throughput fell, and client buffers grew.
    SelfAmplifying,
    /// Anything else.
    Plain,
}

impl BurstKind {
    /// Both kinds, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::SelfAmplifying, Self::Plain];
}

/// The spelling of the label `kind`.
impl fmt::Display for BurstKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SelfAmplifying => "self_amplifying",
            Self::Plain => "plain",
        })
    }
}

/// A finished burst. What is not known is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// Its first evicting call passed the goal site, as time since 1970.
    pub started: Duration,
    /// From there to the end of its last evicting call.
    pub duration: Duration,
    /// From there to when memory did not fall any more, or the next burst began; zero where it did
    /// not fall at all.
    pub reclaim: Duration,
    /// Evicting calls in it.
    pub evicting_calls: u64,
    /// Keys that were evicted in it.
    pub evicted_keys: Option<u64>,
    /// Commands a second in the last minute without burst or reclaim.
    pub commands_per_second_before: Option<f64>,
    /// Commands a second in the burst.
    pub commands_per_second_during: Option<f64>,
    /// Commands a second in its slowest second; in all of it where it was shorter.
    pub commands_per_second_slowest: Option<f64>,
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
    /// Lowest in the reclaim, bytes.
    pub memory_after: Option<u64>,
    /// CPU time of the main thread, as a share of the burst.
    pub cpu_share: Option<f64>,
    /// How long the main thread was ready to run and had no CPU, as a share of the burst.
    pub waiting_share: Option<f64>,
    /// CPU time inside evicting calls, as a share of the main thread's.
    pub eviction_cpu_share: Option<f64>,
}

impl Burst {
    /// Returns commands a second in the burst by those before; `None` too if there were none before.
    pub fn throughput_ratio(&self) -> Option<f64> {
        self.by_usual_rate(self.commands_per_second_during)
    }

    fn by_usual_rate(&self, rate: Option<f64>) -> Option<f64> {
        let before = self.commands_per_second_before.filter(|rate| *rate > 0.0)?;
        Some(rate? / before)
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

    /// Returns its kind, and why, for people.
    pub fn kind(&self) -> (BurstKind, String) {
        let or_unknown = |finding: Option<(bool, String)>, what: &str| {
            finding.unwrap_or_else(|| (false, format!("{what} not known")))
        };
        let findings = [
            self.length(),
            or_unknown(self.cpu(), "the main thread's CPU time is"),
            or_unknown(self.throughput(), "throughput before or in it is"),
            or_unknown(self.buffers(), "client buffers are"),
        ];
        let kind = match findings.iter().all(|(holds, _)| *holds) {
            true => BurstKind::SelfAmplifying,
            false => BurstKind::Plain,
        };
        let is_decisive = |holds: bool| holds == (kind == BurstKind::SelfAmplifying);
        let decisive = findings
            .into_iter()
            .filter(|(holds, _)| is_decisive(*holds));
        let reasons: Vec<String> = decisive.map(|(_, text)| text).collect();
        (kind, reasons.join("; "))
    }

    fn length(&self) -> (bool, String) {
        let text = format!("evictions went on for {:.1} s", self.duration.as_secs_f64());
        (self.duration >= LEAST_DURATION, text)
    }

    fn cpu(&self) -> Option<(bool, String)> {
        // A thread that has to wait for a CPU has no CPU time left either.
        let busy = self.cpu_share? + self.waiting_share.unwrap_or(0.0);
        let percent = busy.min(1.0) * 100.0;
        let text = format!("the main thread had work for {percent:.0} % of the time");
        Some((busy >= SATURATED_CPU, text))
    }

    fn throughput(&self) -> Option<(bool, String)> {
        let ratio = self.by_usual_rate(self.commands_per_second_slowest)?;
        let percent = ratio * 100.0;
        let text =
            format!("throughput in its slowest second was {percent:.0} % of the minute before");
        Some((ratio <= FALLEN_THROUGHPUT, text))
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

    /// Returns a burst as the article describes them.
    pub fn of_the_article() -> Burst {
        Burst {
            started: Duration::from_millis(1_700_000_000_250),
            duration: Duration::from_secs(7),
            reclaim: Duration::from_secs(40),
            evicting_calls: 30_000,
            evicted_keys: Some(250_000),
            commands_per_second_before: Some(60_000.0),
            commands_per_second_during: Some(12_000.0),
            commands_per_second_slowest: Some(9_000.0),
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

    #[test]
    fn each_condition_is_needed() {
        let plain = |change: fn(&mut Burst), why: &str| {
            let mut burst = of_the_article();
            change(&mut burst);
            assert_eq!(burst.kind(), (BurstKind::Plain, why.to_owned()));
        };
        let why = "evictions went on for 0.1 s";
        plain(|burst| burst.duration = Duration::from_millis(100), why);
        let why = "the main thread had work for 40 % of the time";
        plain(|burst| burst.cpu_share = Some(0.4), why);
        let why = "the main thread's CPU time is not known";
        plain(|burst| burst.cpu_share = None, why);
        let why = "throughput in its slowest second was 98 % of the minute before";
        plain(
            |burst| burst.commands_per_second_slowest = Some(59_000.0),
            why,
        );
        let why = "throughput before or in it is not known";
        plain(|burst| burst.commands_per_second_before = Some(0.0), why);
        let why = "client buffers grew by 0.0 MiB from 300.0 MiB";
        plain(
            |burst| burst.client_buffers_peak = burst.client_buffers_before,
            why,
        );
        let why = "client buffers grew by 1.0 MiB from 899.0 MiB";
        plain(|burst| burst.client_buffers_before = Some(899 << 20), why);
        let why = "client buffers are not known";
        plain(|burst| burst.client_buffers_before = None, why);
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
