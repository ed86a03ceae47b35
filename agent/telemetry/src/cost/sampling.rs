//! When the probes of a sampled server are on.

use std::time::Duration;

/// How often the probes are turned on while a server is sampled. Shorter than the quiet time between two bursts
/// (`QUIET_NS`), so that a burst of calls that evict nothing is still one.
const PERIOD: Duration = Duration::from_millis(500);
/// The shortest time for which they are on: attaching takes about a millisecond.
const SHORTEST_ON: Duration = Duration::from_millis(5);
/// The longest such time. If more would fit into the budget, sampling ends.
const LONGEST_ON: Duration = Duration::from_millis(400);
/// Each time, this part of what is left of the ten seconds' budget may be spent. In the long run that spends five
/// sixths of it (20 times a quarter of what is left), and never more than there is.
const AT_A_TIME: f64 = 0.25;
/// The step from one period's jitter to the next, modulo 1: the golden ratio's multiples do not fall into step with
/// anything that the server does regularly.
const JITTER: f64 = 0.618_033_988_749;

/// When the probes are on in mode `sampled`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling {
    /// Since when the probes are on; `None` while they are off.
    on_since: Option<Duration>,
    /// Until when they are on, or off.
    until: Duration,
    /// What they have cost since they were turned on, and what they may cost, nanoseconds.
    spent_ns: f64,
    allowed_ns: f64,
    /// What they cost while they are on, as a share of the main thread: the last time, and the time before.
    shares: [f64; 2],
    /// For how long they were meant to be on the last time.
    length: Duration,
    /// How often they have been on.
    times: u32,
}

impl Sampling {
    /// Begins at `at` with probes that are off, and that cost this share of the main thread while they were on.
    pub fn begin(at: Duration, share: f64) -> Self {
        Self { shares: [share; 2], until: at + PERIOD, ..Self::default() }
    }

    /// Returns since when the probes are on; `None` while they are off.
    pub fn on_since(&self) -> Option<Duration> {
        self.on_since
    }

    /// Returns until when they are on, or off.
    pub fn until(&self) -> Duration {
        self.until
    }

    /// Returns what the probes cost while they are on, as a share of the main thread.
    pub fn share(&self) -> f64 {
        let [last, before] = self.shares;
        last.max(before)
    }

    /// Takes in what the probes, on since `since`, have cost. Turns them off if it is time, and returns whether they
    /// are still on.
    pub fn stays_on(&mut self, at: Duration, since: Duration, spent_ns: f64) -> bool {
        self.spent_ns += spent_ns;
        if at < self.until && self.spent_ns < 2.0 * self.allowed_ns {
            return true;
        }
        let on_ns = at.saturating_sub(since).as_nanos().max(1) as f64;
        self.shares = [self.spent_ns / on_ns, self.shares[0]];
        self.on_since = None;
        self.times = self.times.wrapping_add(1);
        let jitter = 0.75 + 0.5 * (f64::from(self.times) * JITTER).fract();
        self.until = since + PERIOD.mul_f64(jitter);
        false
    }

    /// Turns the probes on if it is time, and if `left_ns` of the budget allows it.
    pub fn turn_on_if_due(&mut self, at: Duration, left_ns: f64) {
        if at < self.until {
            return;
        }
        let share = self.share().max(f64::MIN_POSITIVE);
        let (shortest, longest) = (SHORTEST_ON.as_nanos() as f64, LONGEST_ON.as_nanos() as f64);
        self.allowed_ns = left_ns * AT_A_TIME;
        self.spent_ns = 0.0;
        if share * shortest > left_ns {
            self.until = at + PERIOD;
            return;
        }
        let on_ns = (self.allowed_ns / share).clamp(shortest, longest);
        // A share that was measured in a few milliseconds may be wrong.
        let most = (self.length * 2).max(SHORTEST_ON);
        self.length = Duration::from_nanos(on_ns as u64).min(most);
        self.on_since = Some(at);
        self.until = at + self.length;
    }
}
