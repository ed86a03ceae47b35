//! Made-up records for tests.

use std::time::Duration;

use evictscope_telemetry::{ClientBuffers, LatencySecond, Moment, Phase, SlowCall, StallCause};

use crate::Record;
#[cfg(test)]
use crate::profile::{Activity, Stack};

const MIB: f64 = 1_048_576.0;

/// A record as 0.1.0 wrote it, shortened. docs/COMPATIBILITY.md promises that it can be read.
pub(crate) const FORMAT_1: &str = include_str!("format-1.json");

/// Returns a record of a burst of 7 s and a reclaim of 5 s, in which 30 MiB more of client buffers took memory from a
/// cache of 325 MiB.
pub fn burst_record() -> Record {
    let mut record: Record = serde_json::from_str(FORMAT_1).unwrap_or_else(|error| unreachable!("{error}"));
    let began_us = record.began_us;
    let first = record.moments[0];
    record.moments.clear();
    if let Ok(profile) = &mut record.profile {
        // Evenly spread.
        for stack in &mut profile.stacks {
            let gap_us = profile.length_us / stack.samples.max(1);
            stack.at_ms = (0..stack.samples).map(|sample| (sample * gap_us / 1_000) as u32).collect();
        }
    }
    let (mut commands, mut evicted, mut evicting_us, mut cpu_us) = (1e6, 0.0, 0.0, 0.0);
    let mut calls = 0.0;
    let mut at = -60.0_f64;
    while at < 42.0 {
        let (phase, step) = match at {
            at if at < 0.0 => (Phase::NotSaturated, 0.1),
            at if at < 7.0 => (Phase::Saturated, 0.02),
            at if at < 12.0 => (Phase::Reclaim, 0.02),
            _ => (Phase::NotSaturated, 0.1),
        };
        let is_evicting = phase == Phase::Saturated;
        let swollen = match phase {
            Phase::Saturated => at.min(3.0) / 3.0,
            Phase::Reclaim => (12.0 - at) / 5.0,
            Phase::NotSaturated => 0.0,
        };
        let data = 290.0 + 0.5 * at.min(0.0) / 60.0 - 25.0 * (at / 7.0).clamp(0.0, 1.0);
        commands += step * if is_evicting { 8_000.0 } else { 30_000.0 };
        evicted += if is_evicting { step * 40_000.0 } else { 0.0 };
        evicting_us += if is_evicting { step * 0.8e6 } else { 0.0 };
        calls += if is_evicting { step * 1_500.0 } else { 0.0 };
        cpu_us += step * 1e6 * if is_evicting { 1.0 } else { 0.6 };
        record.moments.push(Moment {
            at: Duration::from_micros(began_us.saturating_add_signed((at * 1e6) as i64)),
            phase: Some(phase),
            used_memory: Some(((data + 35.0 + 30.0 * swollen) * MIB) as u64),
            client_buffers: first
                .client_buffers
                .map(|buffers| ClientBuffers { normal: ((20.0 + 30.0 * swollen) * MIB) as u64, ..buffers }),
            commands: Some(commands as u64),
            evicted_keys: Some(evicted as u64),
            evicting_calls: calls as u64,
            evicting: Duration::from_micros(evicting_us as u64),
            observed: Duration::from_micros(((at + 60.0) * 1e6) as u64),
            cpu: Some(Duration::from_micros(cpu_us as u64)),
            clients_waiting: Some(if is_evicting { 2_000 } else { 1 }),
            longest_wait: Some(Duration::from_micros(if is_evicting { 400_000 } else { 300 })),
            stalled: Some(Duration::from_micros(evicting_us as u64)),
            stalled_by: is_evicting.then_some(StallCause::Eviction),
            ..first
        });
        at += step;
    }
    let slow = record.slowest[0];
    record.slowest = (0..50)
        .map(|index| SlowCall { unix_us: began_us + index * 100_000, duration_ns: 900_000 - index * 5_000, ..slow })
        .collect();
    let second = record.latencies.remove(0);
    record.latencies = (0..7).map(|after| LatencySecond { unix_s: second.unix_s + after, ..second.clone() }).collect();
    record
}

/// Returns a stack of these functions, the outermost first.
#[cfg(test)]
pub(crate) fn stack(frames: &[u32], is_whole: bool, samples: u64) -> Stack {
    Stack { frames: frames.to_vec(), activity: Activity::EvictionCall, is_whole, samples, at_ms: Vec::new() }
}

/// Returns a generator of 31-bit values that look like noise, from a seed (Knuth's MMIX).
#[cfg(test)]
pub(crate) fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}
