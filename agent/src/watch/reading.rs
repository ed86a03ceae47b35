//! Reads a server's counters and members.

use std::time::Duration;

use evictscope_abi::{AllocatorCounters, MemberValues, ServerConfig};
use evictscope_plan::ProcessAddress;

use super::clock::{monotonic, unix_time};
use crate::host::memory;
use crate::probes::{Attachment, ProbeError, Probes};
use crate::telemetry::Snapshot;

/// The kernel samples a main thread only while it is on CPU, and an idle one hardly is: when its
/// last sample is older than this, the agent reads the members itself.
const STALE_SAMPLE: Duration = Duration::from_millis(200);

/// One reading of a server.
pub struct Reading {
    /// Monotonic time before the counters were read: no call that they miss is earlier.
    pub at: Duration,
    /// The same moment as time since 1970.
    pub unix_time: Duration,
    /// Monotonic time after they were read.
    pub read_at: Duration,
    /// The counters and members.
    pub snapshot: Snapshot,
}

/// Reads the server with process id `pid`, which the programs know by `config`.
///
/// # Errors
///
/// Fails where the maps cannot be read.
pub fn read(
    probes: &Probes,
    attachment: &Attachment,
    config: &ServerConfig,
    pid: u32,
) -> Result<Reading, ProbeError> {
    let (at, unix_time) = (monotonic(), unix_time());
    let mut snapshot = probes.read(attachment)?;
    let read_at = monotonic();
    let sampled = Duration::from_nanos(snapshot.samples.members.read_ns);
    if read_at.saturating_sub(sampled) >= STALE_SAMPLE {
        snapshot.idle_members = read_members(pid, config, read_at);
    }
    Ok(Reading {
        at,
        unix_time,
        read_at,
        snapshot,
    })
}

/// Reads the members from the process. Returns `None` if it has just ended.
fn read_members(pid: u32, config: &ServerConfig, now: Duration) -> Option<MemberValues> {
    let members = config.members.iter().copied();
    let addresses: Vec<ProcessAddress> = members
        .filter(|address| *address != 0)
        .chain(counter_addresses(&config.used_memory))
        .map(ProcessAddress::new)
        .collect();
    let words = memory::read_words(pid, &addresses).ok()?;
    let mut words = words.into_iter();
    let mut values = MemberValues {
        read_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
        known: 0,
        values: [0; evictscope_abi::MEMBERS],
        used_memory: 0,
        used_memory_known: 0,
    };
    for (index, address) in config.members.iter().enumerate() {
        if *address != 0 {
            values.values[index] = words.next()?;
            values.known |= 1 << index;
        }
    }
    if config.used_memory.address != 0 {
        // Threads can free what others allocated, so a counter can be negative.
        values.used_memory = words.fold(0, u64::wrapping_add);
        values.used_memory_known = 1;
    }
    Some(values)
}

/// Returns the addresses of the words that add up to the allocator's counter. Those of threads that
/// do not exist are 0.
fn counter_addresses(counters: &AllocatorCounters) -> impl Iterator<Item = u64> + use<> {
    let AllocatorCounters {
        address,
        stride,
        count,
        overflow,
        ..
    } = *counters;
    (0..u64::from(count))
        .map(move |index| address.wrapping_add(index * 8 * u64::from(stride)))
        .chain([overflow])
        .filter(|address| *address != 0)
}
