//! A profile: which functions the main thread of a server ran, and the formats in which that is exported.
//!
//! Deliberately absent: taking one.

pub mod format;

use std::time::Duration;

use evictscope_telemetry::microseconds;
use serde::{Deserialize, Serialize};

/// Where the main thread of a server spent its CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// When it began, microseconds: monotonic, until [`Self::dated`] makes it a time since 1970.
    pub began_us: u64,
    /// For how long it was taken, microseconds.
    pub length_us: u64,
    /// Samples a second of CPU time.
    pub hz: u32,
    /// The names of functions, to which stacks refer by index.
    pub functions: Vec<String>,
    /// Each different stack once.
    pub stacks: Vec<Stack>,
    /// Samples that there was no room for.
    pub lost: u64,
    /// What taking the samples cost the main thread, nanoseconds.
    pub spent_ns: u64,
}

/// A stack that was found one or more times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Indices into [`Profile::functions`], the outermost function first.
    pub frames: Vec<u32>,
    /// What ran.
    pub activity: Activity,
    /// Whether it was unwound to the thread's start.
    pub is_whole: bool,
    /// How many samples had this stack.
    pub samples: u64,
    /// When each of them was taken, milliseconds since the profile began. Empty in records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_ms: Vec<u32>,
}

/// What the main thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A call of `performEvictions()` was on the stack.
    EvictionCall,
    /// A call of `activeExpireCycle()` was.
    ExpireCycle,
    /// Neither.
    Other,
}

/// The most frames of one stack, and of all; and the most bytes of the names of all. The profiler takes fewer.
const MOST_FRAMES: [usize; 2] = [1_024, 1 << 20];
const MOST_BYTES: usize = 64 << 20;

/// Returns whether stacks can be drawn in a bounded time; `of` has for each how many frames there are, and the bytes of
/// their names.
pub(crate) fn are_drawable(of: impl IntoIterator<Item = (usize, usize)>) -> bool {
    let [most, most_of_all] = MOST_FRAMES;
    let (mut frames, mut bytes) = (0, 0);
    of.into_iter().all(|(own_frames, own_bytes)| {
        frames += own_frames;
        bytes += own_bytes;
        own_frames <= most && frames <= most_of_all && bytes <= MOST_BYTES
    })
}

impl Profile {
    /// Returns whether it can be drawn in a bounded time. A record that somebody made up can hold any stacks.
    pub fn is_drawable(&self) -> bool {
        let name = |index: &u32| self.functions.get(*index as usize).map_or(0, String::len);
        are_drawable(self.stacks.iter().map(|stack| {
            let most = MOST_FRAMES[0] + 1;
            (stack.frames.len(), stack.frames.iter().take(most).map(name).sum())
        }))
    }

    /// Returns the profile with the time since 1970 at which it began; `since_1970` is added to a monotonic time.
    #[must_use]
    pub fn dated(self, since_1970: Duration) -> Self {
        let began = since_1970.saturating_add(Duration::from_micros(self.began_us));
        Self { began_us: microseconds(began), ..self }
    }

    /// Returns how much of it lies between two times of the same clock.
    pub fn within(&self, from: Duration, to: Duration) -> Duration {
        let began = Duration::from_micros(self.began_us);
        let ended = began + Duration::from_micros(self.length_us);
        ended.min(to).saturating_sub(began.max(from))
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        sum(self.stacks.iter())
    }

    /// Returns the share of samples that were unwound to the thread's start; `None` without samples.
    pub fn whole_share(&self) -> Option<f64> {
        let whole = sum(self.stacks.iter().filter(|stack| stack.is_whole));
        let all = self.samples();
        (all > 0).then(|| whole as f64 / all as f64)
    }
}

/// Adds up samples. A record that somebody made up can hold any numbers.
fn sum<'a>(stacks: impl Iterator<Item = &'a Stack>) -> u64 {
    stacks.fold(0, |sum, stack| sum.saturating_add(stack.samples))
}
