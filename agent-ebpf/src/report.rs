//! Reports the values that disagree when a check fails, in the agent's log.
//!
//! Each message begins with the server's process id, so that the agent can add a name. The functions
//! are not inlined, so they cost a program neither time nor stack until it calls one.

use aya_log_ebpf::warn;

/// Reports that `mem_reported` and the sum of the allocator's counters disagree.
#[inline(never)]
pub fn allocator(tgid: u32, mem_reported: u64, counted: u64) {
    warn!(&(), "{}: mem_reported is {}, but the allocator counts {}", tgid, mem_reported, counted);
}

/// Reports that the goal variables do not add up: `mem_reported`, `overhead`, `mem_used`,
/// `mem_tofree`, `maxmemory`.
#[inline(never)]
pub fn arithmetic(tgid: u32, variables: &[u64; 5]) {
    let [reported, overhead, used, tofree, maxmemory] = *variables;
    warn!(
        &(),
        "{}: mem_reported {} - overhead {} should be mem_used {}, and mem_used - maxmemory {} should be mem_tofree {}",
        tgid,
        reported,
        overhead,
        used,
        maxmemory,
        tofree
    );
}

/// Reports that `maxmemory` in the calculation and in `server` disagree.
#[inline(never)]
pub fn maxmemory(tgid: u32, calculated: u64, configured: u64) {
    warn!(&(), "{}: maxmemory is {} in the calculation, but server.maxmemory is {}", tgid, calculated, configured);
}

/// Reports that the type of an expire cycle is neither slow nor fast, or it is neither for keys nor for fields.
#[inline(never)]
pub fn cycle_type(tgid: u32, cycle_type: u64, job: u64) {
    warn!(&(), "{}: the type of an expire cycle is {}, and its job {}, not 0 or 1", tgid, cycle_type, job);
}

/// Reports that more keys had expired than an expire cycle sampled.
#[inline(never)]
pub fn cycle_keys(tgid: u32, sampled: u64, expired: u64) {
    warn!(&(), "{}: an expire cycle sampled {} keys, of which {} had expired", tgid, sampled, expired);
}
