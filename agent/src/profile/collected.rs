//! Counts stacks as they come.

use std::collections::HashMap;

use evictscope_records::profile::{Profile, Stack};

use super::unwound::Unwound;

/// The most different stacks to keep; a minute of a server has some hundreds.
const MAX_STACKS: usize = 20_000;
/// The most different functions to keep.
const MAX_FUNCTIONS: usize = 20_000;

/// The stacks of one profile so far.
#[derive(Default)]
pub struct Collected {
    functions: HashMap<String, u32>,
    /// When the samples with each stack were taken.
    stacks: HashMap<StackKey, Vec<u32>>,
    /// Samples for whose stack there was no room.
    pub lost: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct StackKey {
    frames: Vec<u32>,
    activity: evictscope_records::profile::Activity,
    is_whole: bool,
}

impl Collected {
    /// Adds the stack of a sample that was taken `at_ms` milliseconds after the profile began.
    pub fn add(&mut self, unwound: Unwound, at_ms: u32) {
        let known = self.functions.len();
        if known + unwound.functions.len() > MAX_FUNCTIONS {
            self.lost += 1;
            return;
        }
        let frames = unwound.functions.into_iter().rev().map(|name| {
            let next = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
            *self.functions.entry(name).or_insert(next)
        });
        let key = StackKey { frames: frames.collect(), activity: unwound.activity, is_whole: unwound.is_whole };
        if self.stacks.len() >= MAX_STACKS && !self.stacks.contains_key(&key) {
            self.lost += 1;
            return;
        }
        self.stacks.entry(key).or_default().push(at_ms);
    }

    /// Fills the functions and stacks of a profile, the most frequent stack first.
    pub fn fill(self, profile: &mut Profile) {
        let mut functions: Vec<(String, u32)> = self.functions.into_iter().collect();
        functions.sort_unstable_by_key(|(_, index)| *index);
        profile.functions = functions.into_iter().map(|(name, _)| name).collect();
        let stacks = self.stacks.into_iter().map(|(key, at_ms)| Stack {
            frames: key.frames,
            activity: key.activity,
            is_whole: key.is_whole,
            samples: at_ms.len() as u64,
            at_ms,
        });
        profile.stacks = stacks.collect();
        let order = |stack: &Stack| (std::cmp::Reverse(stack.samples), stack.frames.clone());
        profile.stacks.sort_by_cached_key(order);
        profile.lost += self.lost;
    }
}
