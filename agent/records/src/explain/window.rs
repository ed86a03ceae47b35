//! The parts of a record: the calm before, what it is about, and what came after.

use std::time::Duration;

use evictscope_telemetry::{
    Burst, BurstKind, CallResult, Moment, SlowCall, StallCause, StallTime, last_calm, microseconds, stall_times,
};

use crate::{Occasion, Record};

/// A shorter calm says too little about what is usual.
const LEAST_CALM: Duration = Duration::from_secs(5);
/// The server's count of client buffers lags behind: its cron visits each client about once a second.
const LATE_US: u64 = 1_500_000;
/// What a server was, or did, until so long ago may still be why it evicts, microseconds.
pub const LATELY_US: u64 = 5_000_000;
/// Stalls of less than this in all are no incident: a record is made from this on.
const LEAST_STALL_US: u64 = 1_000_000;

/// Returns how fast a counter rose, per second.
pub fn rate(moments: &[Moment], counter: fn(&Moment) -> Option<u64>) -> Option<f64> {
    let (first, last) = (moments.first()?, moments.last()?);
    let risen = counter(last)?.checked_sub(counter(first)?)?;
    let us = last.unix_us().checked_sub(first.unix_us())?;
    (us > 0).then(|| risen as f64 * 1e6 / us as f64)
}

/// A record, divided.
pub struct Window<'a> {
    pub record: &'a Record,
    /// When it began, microseconds since 1970: the first evicting call of a burst.
    pub began_us: u64,
    /// When the last evicting call ended, as far as the record says.
    pub evicted_until_us: u64,
    /// The moments before it, back to when the server last evicted or memory last fell.
    pub calm: &'a [Moment],
    /// The moments from the first evicting call to the last.
    pub inside: &'a [Moment],
    /// The same, with the reclaim and the time until client buffers are counted.
    pub whole: &'a [Moment],
}

impl<'a> Window<'a> {
    pub fn of(record: &'a Record) -> Self {
        let moments = &record.moments;
        let of_burst = |burst: &Burst| {
            let ended = burst.started.saturating_add(burst.duration);
            (microseconds(burst.started), microseconds(ended))
        };
        let whole = (record.began_us, record.ended_us);
        let (mut began_us, evicted_until_us) = match (&record.burst, record.occasion) {
            // A stall can begin before the burst in it, and go on after it.
            (Some(burst), Occasion::Stall | Occasion::Lost) => {
                let (began_us, ended_us) = of_burst(burst);
                (began_us.min(whole.0), ended_us.max(whole.1))
            }
            (Some(burst), _) => of_burst(burst),
            // These are about all their moments.
            (None, Occasion::Asked | Occasion::Ended) => {
                moments.first().zip(moments.last()).map_or(whole, |(first, last)| (first.unix_us(), last.unix_us()))
            }
            (None, _) => whole,
        };
        // Keys are counted once a second, so it was calm for a moment after a loss is said to have begun.
        if record.occasion == Occasion::Lost {
            let busy = moments.iter().filter(|moment| moment.is_busy()).map(Moment::unix_us);
            began_us = busy.filter(|us| (began_us..=evicted_until_us).contains(us)).min().unwrap_or(began_us);
        }
        let mut first = moments.partition_point(|moment| moment.unix_us() < began_us);
        let before = moments.get(..first).unwrap_or_default();
        let mut calm = before.rsplit(Moment::is_busy).next().unwrap_or_default();
        // What began in a burst goes back to the beginning of that.
        if calm.is_empty()
            && record.burst.is_none()
            && let Some(earlier) = last_calm(before)
            && let Some(last) = earlier.last()
        {
            calm = earlier;
            first = moments.partition_point(|moment| moment.at <= last.at);
            began_us = moments.get(first).map_or(began_us, Moment::unix_us);
        }
        let up_to = |us: u64| {
            let end = moments.partition_point(|moment| moment.unix_us() <= us);
            moments.get(first..end).unwrap_or_default()
        };
        let until_us = record.ended_us.max(evicted_until_us);
        Self {
            record,
            began_us,
            evicted_until_us,
            calm,
            inside: up_to(evicted_until_us),
            whole: up_to(until_us.saturating_add(LATE_US)),
        }
    }

    /// Returns the burst; of a longer time, if most keys that were evicted in that went in it.
    pub fn burst(&self) -> Option<&'a Burst> {
        let burst = self.record.burst.as_ref()?;
        let all = self.grown(|moment| moment.evicted_keys).unwrap_or(0);
        let is_most = self.record.occasion == Occasion::Burst || burst.evicted_keys.is_none_or(|keys| keys >= all / 2);
        is_most.then_some(burst)
    }

    /// Returns whether there is anything to explain: a burst that is not plain, a stall, calls that could evict
    /// nothing, or whatever else a record is made for.
    pub fn is_incident(&self) -> bool {
        let is_burst = self.burst().is_some_and(|burst| burst.kind().0 != BurstKind::Plain);
        let has_stalled = self.stalled_us().is_some_and(|us| us >= LEAST_STALL_US);
        let is_other = !matches!(self.record.occasion, Occasion::Burst | Occasion::Asked | Occasion::Ended);
        is_burst || has_stalled || is_other || self.failed_to_evict()
    }

    pub fn refused(&self) -> Option<u64> {
        let refused = self.grown(|moment| moment.refused);
        refused.filter(|refused| *refused > 0)
    }

    /// Returns the CPU time of processes that the server had forked, microseconds; `None` if none ran.
    pub fn child_us(&self) -> Option<u64> {
        let all = self.calm.last().into_iter().chain(self.whole);
        let mut before = all.clone().next()?.child.map(microseconds);
        let mut taken = None;
        for now in all.map(|moment| moment.child.map(microseconds)) {
            // A new child has taken all its time since.
            let since = before.filter(|before| Some(*before) <= now).unwrap_or(0);
            if let Some(now) = now {
                taken = Some(taken.unwrap_or(0_u64).saturating_add(now - since));
            }
            before = now;
        }
        taken
    }

    /// Returns for how long CPU quotas were used up, microseconds; `None` if there are none, or they are not known.
    pub fn throttled_us(&self) -> Option<u64> {
        self.grown_us(|moment| moment.throttled)
    }

    /// Returns for how long clients were stalled, microseconds.
    pub fn stalled_us(&self) -> Option<u64> {
        self.grown_us(|moment| moment.stalled)
    }

    /// Returns for how long clients were stalled by each cause, microseconds, the longest first.
    pub fn stalled_by(&self) -> Vec<(StallCause, u64)> {
        let mut stalled = StallCause::ALL.map(|cause| (cause, 0_u64));
        for stall in self.stall_times() {
            let total = &mut stalled[stall.by as usize].1;
            *total = total.saturating_add(stall.length_us());
        }
        let mut stalled = Vec::from(stalled);
        stalled.retain(|(_, us)| *us > 0);
        stalled.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
        stalled
    }

    pub fn stall_times(&self) -> impl Iterator<Item = StallTime> {
        stall_times(self.calm.last().into_iter().chain(self.whole).copied())
    }

    /// Returns commands per second while evictions went on, as a multiple of those in the calm before.
    pub fn commands_kept(&self) -> Option<f64> {
        let [within, before] = [self.inside, self.calm].map(|moments| rate(moments, |moment| moment.commands));
        Some(within.filter(|rate| *rate > 0.0)? / before.filter(|rate| *rate > 0.0)?)
    }

    /// Returns the moments between which counters are compared: just before it began, and a little after the last
    /// evicting call.
    fn ends(&self) -> Option<(&'a Moment, &'a Moment)> {
        Some((self.calm.last().or(self.inside.first())?, self.whole.get(self.inside.len()).or(self.inside.last())?))
    }

    /// Returns how much a counter rose from just before it began to a little after the last evicting call. `None` if it
    /// is not known at both moments.
    pub fn grown(&self, counter: fn(&Moment) -> Option<u64>) -> Option<u64> {
        let (from, to) = self.ends()?;
        counter(to)?.checked_sub(counter(from)?)
    }

    /// Returns how much a time grew meanwhile, microseconds.
    pub fn grown_us(&self, time: fn(&Moment) -> Option<Duration>) -> Option<u64> {
        let (from, to) = self.ends()?;
        microseconds(time(to)?).checked_sub(microseconds(time(from)?))
    }

    pub fn observed_share(&self) -> Option<f64> {
        let observed = self.grown_us(|moment| Some(moment.observed))?;
        let elapsed = self.grown_us(|moment| Some(moment.at))?;
        (elapsed > 0).then(|| (observed as f64 / elapsed as f64).min(1.0))
    }

    /// Returns for how long evictions went on, seconds.
    pub fn seconds(&self) -> f64 {
        Duration::from_micros(self.evicted_until_us.saturating_sub(self.began_us)).as_secs_f64()
    }

    /// Returns whether the calm before is long enough to say what is usual.
    pub fn has_calm(&self) -> bool {
        self.calm_length() >= LEAST_CALM
    }

    pub fn calm_length(&self) -> Duration {
        Duration::from_micros(self.calm_us())
    }

    fn calm_us(&self) -> u64 {
        self.began_us.saturating_sub(self.calm_from_us())
    }

    fn calm_from_us(&self) -> u64 {
        self.calm.first().map_or(self.began_us, |moment| moment.unix_us())
    }

    /// Returns how long after the beginning of the calm a moment was, seconds.
    pub fn seconds_since_calm(&self, moment: &Moment) -> f64 {
        moment.unix_us().saturating_sub(self.calm_from_us()) as f64 / 1e6
    }

    /// Returns the share of the time for which the main thread was ready to run and had no CPU.
    pub fn waiting_share(&self) -> Option<f64> {
        self.burst().and_then(|burst| burst.waiting_share).or_else(|| {
            let waited = self.grown_us(|moment| moment.waiting)? as f64 / 1e6;
            (self.seconds() > 0.0).then(|| (waited / self.seconds()).min(1.0))
        })
    }

    /// Returns the later half of the calm: at its beginning the server may still account for buffers that it has
    /// released, and memory may still fall from an earlier reclaim.
    pub fn settled(&self) -> &'a [Moment] {
        let half = self.began_us.saturating_sub(self.calm_us() / 2);
        self.calm.get(self.calm.partition_point(|moment| moment.unix_us() < half)..).unwrap_or_default()
    }

    pub fn evicted_keys(&self) -> Option<u64> {
        self.burst().and_then(|burst| burst.evicted_keys).or_else(|| self.grown(|moment| moment.evicted_keys))
    }

    /// Returns the shortest time for which an evicted key had not been used, according to the eviction pool; `None` if
    /// that is not known.
    pub fn evicted_idle(&self) -> Option<Duration> {
        let idle = self.inside.iter().filter_map(|moment| moment.candidate_idle_s);
        idle.min().map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Returns the evicting calls among the slowest that ended in it, the slowest first.
    pub fn slowest(&self) -> impl Iterator<Item = &'a SlowCall> {
        // Two clocks are compared.
        let slack = 20_000;
        let span = self.began_us.saturating_sub(slack)..=self.evicted_until_us.saturating_add(slack);
        self.record.slowest.iter().filter(move |call| span.contains(&call.unix_us))
    }

    pub fn has_evicted(&self) -> bool {
        let calls = self.grown(|moment| Some(moment.evicting_calls));
        calls.is_some_and(|calls| calls > 0) || self.evicted_keys().is_some_and(|keys| keys > 0)
    }

    /// Returns whether calls were made to evict, and none could evict anything, or none any more: of the keys with a
    /// TTL, which alone the policy allows, none was left.
    pub fn failed_to_evict(&self) -> bool {
        let has_slowest = self.slowest().next().is_some();
        let all_failed = self.slowest().all(|call| call.result == CallResult::Fail);
        let is_refused = self.refused().is_some();
        let policy = self.record.configuration.maxmemory_policy.as_deref().unwrap_or_default();
        let is_last = is_refused && policy.starts_with("volatile-") && self.expiring_keys().last() == Some(0);
        (has_slowest && all_failed || is_refused) && self.evicted_keys() == Some(0) || is_last
    }

    /// Returns how many keys had a time to live, at each reading of it.
    pub fn expiring_keys(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.calm.iter().chain(self.whole).filter_map(|moment| moment.memory?.expiring_keys)
    }

    /// Returns how many connections did not read what was sent to them, when that was worst.
    pub fn not_reading(&self) -> u64 {
        let looks = self.record.peers.iter().filter(|look| look.unix_us >= self.began_us.saturating_sub(LATELY_US));
        looks.map(|look| look.seen.all.not_reading).max().unwrap_or(0)
    }

    /// Returns `maxmemory`, bytes, when it began; `None` if it is not known or there is no limit.
    pub fn limit(&self) -> Option<u64> {
        let limit = self.inside.first().or(self.calm.last()).and_then(|moment| moment.maxmemory);
        limit.or(self.record.configuration.maxmemory).filter(|limit| *limit > 0)
    }
}
