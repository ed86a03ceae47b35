//! Probes on the agent's own functions. The programs do everything that they do for a server, because they get a
//! configuration with recipes and members in the agent's own memory.

use std::sync::Arc;

use evictscope_abi::{
    AllocatorCounters, Cookie, EVICTION, EXPIRE, EncodedRecipe, EncodedTerm, MAX_FUNCTIONS, Probe, REGISTERS,
    ServerConfig, TermKind, Variable, When,
};
use evictscope_model::FileOffset;
use evictscope_plan::{EVICTION_CALL, FunctionKind};
use evictscope_telemetry::Counted;

use super::attach::{Probes, Slot};
use super::error::ProbeError;
use super::keeper::Link;
use super::target::Own;

/// Probes on this process.
pub(super) struct SelfProbes {
    links: Vec<Link>,
    slot: Slot,
}

impl SelfProbes {
    /// Attaches probes of the eviction call.
    pub(super) fn attach(
        probes: &Arc<Probes>,
        config: ServerConfig,
        placed: &[(Probe, FileOffset)],
    ) -> Result<Self, ProbeError> {
        let function = FunctionKind { index: usize::from(EVICTION), description: EVICTION_CALL.description };
        Self::attach_function(probes, config, function, placed)
    }

    /// Attaches probes of a traced function.
    pub(super) fn attach_function(
        probes: &Arc<Probes>,
        config: ServerConfig,
        function: FunctionKind,
        placed: &[(Probe, FileOffset)],
    ) -> Result<Self, ProbeError> {
        let slot = Slot::take(probes)?;
        let mut own = Self { links: Vec::new(), slot };
        let this = Own::open()?;
        let cookie = Cookie {
            slot: own.slot.number,
            function: super::attachment::number(function)?,
            site: 0,
            when: When::ALWAYS,
        };
        probes.maps.fill(own.slot.number, config)?;
        for (probe, file_offset) in placed {
            let function = function.description;
            let sites = [(*file_offset, cookie)];
            let attached = (probes.programs).attach(function, *probe, this.target(), &sites);
            own.links.extend(attached?);
        }
        Ok(own)
    }

    /// Returns what was counted.
    pub(super) fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        let Slot { probes, number } = &self.slot;
        probes.maps.read(*number, EXPIRE + 1, &mut counted);
        counted
    }
}

impl Drop for SelfProbes {
    fn drop(&mut self) {
        // Before the slot, which another server may get then.
        self.links.clear();
    }
}

/// What a server's memory holds: 1 KiB over its limit.
static MAXMEMORY: u64 = 64 << 20;
static USED_MEMORY: u64 = MAXMEMORY + OVER_LIMIT;
const OVER_LIMIT: u64 = 1 << 10;

fn constant(value: u64) -> EncodedTerm {
    EncodedTerm { kind: TermKind::Constant as u8, displacement: value.cast_signed(), ..EncodedTerm::ABSENT }
}

/// Returns a configuration like a server's, with all that is read and tested there: each call is an evicting call
/// that passes every check.
pub(super) fn as_server(pid: u32) -> ServerConfig {
    let memory = |of: &'static u64| EncodedTerm {
        kind: TermKind::Absolute as u8,
        displacement: (&raw const *of as u64).cast_signed(),
        ..EncodedTerm::ABSENT
    };
    let mut config = ServerConfig { tgid: pid, is_observed: [1; MAX_FUNCTIONS as usize], ..ServerConfig::OFF };
    let was_read = |read: u8| EncodedTerm {
        kind: TermKind::Register as u8,
        register: REGISTERS as u8 + 2 * read,
        ..EncodedTerm::ABSENT
    };
    config.eviction.reads[0] = memory(&USED_MEMORY);
    config.eviction.reads[1] = memory(&MAXMEMORY);
    for (variable, term) in [
        (Variable::MemReported, was_read(0)),
        (Variable::Overhead, constant(0)),
        (Variable::MemUsed, was_read(0)),
        (Variable::MemTofree, constant(OVER_LIMIT)),
        (Variable::Maxmemory, was_read(1)),
    ] {
        config.eviction.recipes[variable as usize] =
            EncodedRecipe { terms: [term, EncodedTerm::ABSENT, EncodedTerm::ABSENT] };
    }
    config.eviction.results[0] = EncodedTerm { kind: TermKind::Register as u8, ..EncodedTerm::ABSENT };
    config.eviction.maxmemory = &raw const MAXMEMORY as u64;
    config.eviction.used_memory = AllocatorCounters::one(&raw const USED_MEMORY as u64);
    config
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use evictscope_abi::{
        ALLOCATOR_SLACK, ALLOCATOR_STREAK, AllocatorCounters, CHECKED_FIRST, CHECKED_ONE_IN, Check, Probe, QUIET_NS,
        Variable,
    };
    use evictscope_telemetry::Counted;

    use super::{FileOffset, OVER_LIMIT, Probes, SelfProbes, USED_MEMORY, as_server, constant};
    use crate::keeper::LinkKeeper;
    use crate::own::{FUNCTIONS, alone, own_sites};

    /// Calls a function `calls` times with every probe of the eviction call on it, after `change` has changed the
    /// configuration that the programs see.
    fn counted(
        calls: u64,
        change: impl Fn(&mut evictscope_abi::ServerConfig),
    ) -> anyhow::Result<(Counted, Vec<String>)> {
        let (seen, said, _) = counted_with(calls, change, |_| {})?;
        Ok((seen, said))
    }

    /// As [`counted`], but passes `before` the number of each call before making it. Also returns how often the machine
    /// stood still for so long that another burst may have begun.
    fn counted_with(
        calls: u64,
        change: impl Fn(&mut evictscope_abi::ServerConfig),
        before: impl Fn(u64),
    ) -> anyhow::Result<(Counted, Vec<String>, u64)> {
        let _alone = alone();
        let [function, ..] = FUNCTIONS;
        let probes = Probes::load(&LinkKeeper::in_thread()?, None)?;
        let [begin, ..] = own_sites()?;
        let mut config = as_server(std::process::id());
        change(&mut config);
        // The goal site is after the first push; the return probe ends the calls.
        let placed = [(Probe::Return, begin), (Probe::Enter, begin), (Probe::Inner, FileOffset::new(begin.get() + 1))];
        let own = SelfProbes::attach(&probes, config, &placed)?;
        let (mut last, mut pauses) = (Instant::now(), 0);
        for call in 0..calls {
            before(call);
            let before_last = mem::replace(&mut last, Instant::now());
            pauses += u64::from(last - before_last > Duration::from_nanos(QUIET_NS / 2));
            // SAFETY: it takes nothing, and only touches rbx, which it restores.
            unsafe { function() };
        }
        let seen = own.counted();
        let texts = probes.messages().into_iter().map(|message| {
            assert_eq!(message.pid, std::process::id());
            message.text
        });
        Ok((seen, texts.collect(), pauses))
    }

    fn kinds(seen: &Counted) -> (u64, u64) {
        let calls = &seen.calls[0];
        (calls.inner.counts.iter().sum(), calls.noop.counts.iter().sum())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn calls_are_evicting_or_noop() -> anyhow::Result<()> {
        let (seen, said) = counted(10, |_| {})?;
        assert_eq!((kinds(&seen), said.len()), ((10, 0), 0));
        let within = |config: &mut evictscope_abi::ServerConfig| {
            config.eviction.recipes[Variable::MemUsed as usize].terms[0] = constant(0);
        };
        let (seen, _) = counted(10, within)?;
        assert_eq!(kinds(&seen), (0, 10));
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn a_call_far_from_the_allocators_counter_is_not_counted() -> anyhow::Result<()> {
        let reported = USED_MEMORY + 2 * ALLOCATOR_SLACK;
        let far = |config: &mut evictscope_abi::ServerConfig| {
            for variable in [Variable::MemReported, Variable::MemUsed] {
                config.eviction.recipes[variable as usize].terms[0] = constant(reported);
            }
            let tofree = constant(OVER_LIMIT + 2 * ALLOCATOR_SLACK);
            config.eviction.recipes[Variable::MemTofree as usize].terms[0] = tofree;
        };
        let (seen, said) = counted(ALLOCATOR_STREAK - 1, far)?;
        assert_eq!((kinds(&seen), said.len()), ((0, 0), 0));
        assert_eq!(seen.evictions.allocator_far, ALLOCATOR_STREAK - 1);

        // The next one fails the check, which is reported once, with both values.
        let (seen, said) = counted(ALLOCATOR_STREAK + 5, far)?;
        assert_eq!(kinds(&seen), (0, 0));
        assert_eq!(seen.evictions.check_failures[Check::Allocator as usize], 1);
        let [text] = &said[..] else {
            panic!("{said:?}");
        };
        for value in [reported, USED_MEMORY] {
            assert!(text.contains(&value.to_string()), "{value} in {text}");
        }
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn calls_are_compared_with_the_servers_memory_now_and_then() -> anyhow::Result<()> {
        let calls = 1000;
        let (seen, _, pauses) = counted_with(calls, |_| {}, |_| {})?;
        // The call that begins the burst is compared, too.
        let one_by_one = 1 + CHECKED_FIRST;
        let compared = one_by_one + (calls - one_by_one) / CHECKED_ONE_IN;
        let [allocator, maxmemory, arithmetic] =
            [Check::Allocator, Check::Maxmemory, Check::Arithmetic].map(|check| seen.evictions.checks[check as usize]);
        let most = compared + pauses * one_by_one;
        assert!((compared..=most).contains(&allocator), "{allocator}, not {compared} to {most}");
        assert_eq!((maxmemory, arithmetic), (allocator, calls));
        assert_eq!(kinds(&seen), (calls, 0));
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn of_calls_that_become_wrong_few_are_counted() -> anyhow::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(USED_MEMORY);
        let own_counter = |config: &mut evictscope_abi::ServerConfig| {
            config.eviction.used_memory = AllocatorCounters::one(COUNTER.as_ptr() as u64);
        };
        // A call that is not compared comes first.
        let wrong_from = 1 + CHECKED_FIRST + CHECKED_ONE_IN;
        let become_wrong = |call| {
            if call == wrong_from {
                COUNTER.fetch_add(2 * ALLOCATOR_SLACK, Ordering::Relaxed);
            }
        };
        let (seen, said, pauses) = counted_with(wrong_from + 500, own_counter, become_wrong)?;
        let most = wrong_from + CHECKED_ONE_IN - 1;
        // The first call of another burst is compared.
        let least = if pauses == 0 { most } else { wrong_from };
        let (evicting, noop) = kinds(&seen);
        assert!((least..=most).contains(&evicting), "{evicting}");
        assert_eq!(noop, 0);
        // The first one compared has the next ones compared.
        assert_eq!(seen.evictions.allocator_far, ALLOCATOR_STREAK);
        assert_eq!(seen.evictions.check_failures[Check::Allocator as usize], 1);
        assert_eq!(said.len(), 1);
        Ok(())
    }
}
