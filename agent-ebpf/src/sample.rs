//! The program on the main thread's CPU clock.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::bpf_perf_event_value;
use aya_ebpf::helpers::generated::bpf_perf_prog_read_value;
use aya_ebpf::programs::PerfEventContext;
use evictscope_abi::{
    Activity, CLIENT_BUFFERS_INTERVAL_NS, Fault, MEMBERS, Member, SampleStats, ServerConfig, bounds,
};

use crate::calls::now;
use crate::counters::{self, Sum};
use crate::evaluate::read_user;
use crate::maps::{
    COUNTER_WORDS, Error, Sample, count_fault, counters_of_sample, cpu_bins, sample,
};

/// Charges the CPU time since the last sample, and reads the members.
#[inline(always)]
pub fn try_sample(ctx: &PerfEventContext) -> Result<(), Error> {
    // SAFETY: the only call in this program.
    let Sample {
        slot,
        config,
        mut stats,
        evicting,
        last_evicting_ns,
    } = unsafe { sample() }?;
    let charged = charge_cpu(ctx, slot, &mut stats, evicting);
    read_members(slot, config, &mut stats)?;
    if !evicting && last_evicting_ns != 0 {
        keep_lowest_memory(&mut stats, last_evicting_ns);
    }
    charged
}

#[inline(always)]
fn charge_cpu(
    ctx: &PerfEventContext,
    slot: u32,
    stats: &mut SampleStats,
    evicting: bool,
) -> Result<(), Error> {
    let mut value = bpf_perf_event_value {
        counter: 0,
        enabled: 0,
        running: 0,
    };
    let size = size_of::<bpf_perf_event_value>() as u32;
    // SAFETY: the context is the one the program was called with, the buffer is as long as said.
    if unsafe { bpf_perf_prog_read_value(ctx.as_ptr().cast(), &mut value, size) } != 0 {
        return Err(Error::Fault(slot, Fault::CpuTime));
    }
    let activity = if evicting {
        Activity::Eviction
    } else {
        Activity::Other
    };
    let elapsed = value.counter.wrapping_sub(stats.counter_ns);
    stats.cpu_ns[activity as usize] = stats.cpu_ns[activity as usize].wrapping_add(elapsed);
    stats.counter_ns = value.counter;
    let bins = cpu_bins(slot)?;
    // A sampling period, mostly just before now.
    // SAFETY: an update is under way.
    unsafe { (*bins)[activity as usize].add_before(now(), elapsed) };
    Ok(())
}

#[inline(always)]
fn read_members(slot: u32, config: &ServerConfig, stats: &mut SampleStats) -> Result<(), Error> {
    let now = now();
    stats.members.used_memory_known = 0;
    // First, while the verifier has not yet told apart which members are known: it would follow the
    // loop over the counters for each combination.
    if config.used_memory.address != 0 {
        // SAFETY: an update is under way.
        let copy = unsafe { &mut *counters_of_sample(slot)? };
        let Sum { known, is_fault } =
            counters::sum::<{ COUNTER_WORDS as u32 }>(&config.used_memory, copy);
        stats.members.used_memory = known.value;
        stats.members.used_memory_known = known.is_known as u64;
        if is_fault {
            count_fault(slot, Fault::Allocator);
        }
    }
    let mut known = 0_u64;
    for index in 0..MEMBERS {
        if config.members[index] == 0 {
            continue;
        }
        match read_user(config.members[index]) {
            Some(value) => {
                stats.members.values[index] = value;
                known |= 1 << index;
            }
            None => count_fault(slot, Fault::Member),
        }
    }
    stats.members.known = known;
    stats.members.read_ns = now;
    count_client_buffers(stats, known, now);
    Ok(())
}

#[inline(always)]
fn keep_lowest_memory(stats: &mut SampleStats, last_evicting_ns: u64) {
    if stats.members.used_memory_known == 0 {
        return;
    }
    let used = stats.members.used_memory;
    if stats.lowest_since_ns != last_evicting_ns || used < stats.lowest_memory {
        stats.lowest_memory = used;
        stats.lowest_since_ns = last_evicting_ns;
    }
}

#[inline(always)]
fn count_client_buffers(stats: &mut SampleStats, known: u64, now: u64) {
    const CLASSES: [Member; 4] = [
        Member::ClientsNormal,
        Member::ClientsReplica,
        Member::ClientsPubsub,
        Member::ClientsPrimary,
    ];
    let mut total = 0_u64;
    for class in CLASSES {
        if known & (1 << class as usize) == 0 {
            return;
        }
        total = total.wrapping_add(stats.members.values[class as usize]);
    }
    if total > stats.client_buffers_peak {
        stats.client_buffers_peak = total;
    }
    if now.wrapping_sub(stats.client_buffers_ns) >= CLIENT_BUFFERS_INTERVAL_NS {
        stats.client_buffers_ns = now;
        stats
            .client_buffers
            .record(bounds::CLIENT_BUFFERS.bucket(total), total);
    }
}
