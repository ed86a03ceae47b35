//! Has a server's expired keys sampled when that is due, in a thread of its own: its tables may be many, and no reading
//! waits for them.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use evictscope_host::Words;
use evictscope_plan::ProbePlan;
use evictscope_telemetry::ExpiredSample;

use crate::keys::{ExpiredSampler, Memory, Walk};

/// The least time between two samples: that between two scrapes. And that of a server that is calm.
const INTERVAL: Duration = Duration::from_secs(15);
const CALM_INTERVAL: Duration = Duration::from_secs(60);
/// What took long is followed by this many times as long without it.
pub const REST: u32 = 200;

/// After so many failures in a row they are said not to be known: a server that changes its tables just then is only
/// tried again.
const FAILURES: u32 = 5;

pub struct ExpiredKeys {
    pid: u32,
    plan: Arc<ProbePlan>,
    load_bias: u64,
    /// The thread has it meanwhile.
    sampler: ExpiredSampler,
    thread: Option<JoinHandle<Done>>,
    failures: u32,
    /// When the last sample began, and for how long there is none from then on.
    begun: Duration,
    pause: Duration,
}

/// What a thread hands back.
struct Done {
    sampler: ExpiredSampler,
    sample: anyhow::Result<Option<ExpiredSample>>,
    took: Duration,
}

impl ExpiredKeys {
    /// Returns the expired keys of a process whose executable has `plan` and was loaded with `load_bias`.
    pub fn new(pid: u32, plan: &Arc<ProbePlan>, load_bias: u64) -> Self {
        Self {
            pid,
            plan: plan.clone(),
            load_bias,
            sampler: ExpiredSampler::default(),
            thread: None,
            failures: 0,
            begun: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }

    /// Returns a sample, if one has been completed, and begins another when that is due. `at` is monotonic.
    pub fn follow(&mut self, at: Duration, memory: &Arc<Words>, is_calm: bool) -> Option<ExpiredSample> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let done = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            self.sampler = done.sampler;
            self.pause = done.took * REST;
            return self.completed(done.sample);
        }
        let interval = if is_calm { CALM_INTERVAL } else { INTERVAL };
        let is_due = at.saturating_sub(self.begun) >= interval.max(self.pause);
        if self.thread.is_none() && is_due {
            self.begun = at;
            let sampler = std::mem::take(&mut self.sampler);
            let (memory, plan, bias) = (memory.clone(), self.plan.clone(), self.load_bias);
            let thread = Builder::new().name("expired keys".to_owned());
            // If there can be no thread now, there may be one at the next turn.
            self.thread = (thread.spawn(move || sample(sampler, &memory, &plan, bias))).ok();
        }
        None
    }

    fn completed(&mut self, sample: anyhow::Result<Option<ExpiredSample>>) -> Option<ExpiredSample> {
        match sample {
            Ok(sample) => {
                self.failures = 0;
                sample
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == FAILURES {
                    tracing::warn!(pid = self.pid, "its expired keys are not sampled: {why:#}");
                }
                None
            }
        }
    }

    /// Returns whether they cannot be sampled.
    pub fn are_unknown(&self) -> bool {
        self.failures >= FAILURES
    }
}

fn sample(mut sampler: ExpiredSampler, memory: &Arc<Words>, plan: &ProbePlan, bias: u64) -> Done {
    let begun = Instant::now();
    let memory = Memory::of(memory, Walk::Expired);
    let sample = sampler.sample(&memory, plan, bias);
    Done { sampler, sample, took: begun.elapsed() }
}
