//! The maps of the programs: a slot for each server.

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, PerCpuArray, PerCpuValues};
use evictscope_abi::{
    BinRing, CallStats, Cookie, EVICTION, EvictionStats, FaultCounts, MAX_FUNCTIONS, SampleStats,
    ServerConfig, Updated,
};

use super::error::ProbeError;
use super::kernel::Shared;
use crate::telemetry::Snapshot;

/// How often a copy that was torn by an update is tried again.
const MAX_TORN_COPIES: usize = 16;

/// The maps.
pub struct Maps {
    configs: Array<MapData, Shared<ServerConfig>>,
    calls: Array<MapData, Shared<Updated<CallStats>>>,
    evictions: Array<MapData, Shared<EvictionStats>>,
    samples: Array<MapData, Shared<Updated<SampleStats>>>,
    faults: PerCpuArray<MapData, Shared<FaultCounts>>,
    eviction_bins: Array<MapData, Shared<BinRing>>,
    cpu_bins: Array<MapData, Shared<[BinRing; 2]>>,
    slots: HashMap<MapData, u32, u32>,
}

/// Returns the index of a function's calls.
fn calls_index(slot: u32, function: u16) -> u32 {
    let cookie = Cookie {
        slot,
        function,
        site: 0,
    };
    cookie.calls()
}

impl Maps {
    /// Takes the maps of the loaded object.
    ///
    /// # Errors
    ///
    /// Where one is missing.
    pub fn of(ebpf: &mut Ebpf) -> Result<Self, ProbeError> {
        let mut map = |name| ebpf.take_map(name).ok_or(ProbeError::Object(name));
        Ok(Self {
            configs: Array::try_from(map("CONFIGS")?)?,
            calls: Array::try_from(map("CALLS")?)?,
            evictions: Array::try_from(map("EVICTIONS")?)?,
            samples: Array::try_from(map("SAMPLES")?)?,
            faults: PerCpuArray::try_from(map("FAULTS")?)?,
            eviction_bins: Array::try_from(map("EVICTION_BINS")?)?,
            cpu_bins: Array::try_from(map("CPU_BINS")?)?,
            slots: HashMap::try_from(map("SLOTS")?)?,
        })
    }

    /// Gives a slot to the server of `config`. Counting begins at zero.
    ///
    /// # Errors
    ///
    /// Where a map cannot be written.
    pub fn fill(&mut self, slot: u32, config: ServerConfig) -> Result<(), ProbeError> {
        for function in (0..).take(MAX_FUNCTIONS as usize) {
            let index = calls_index(slot, function);
            self.calls
                .set(index, Shared::<Updated<CallStats>>::zero(), 0)?;
        }
        let evictions = Shared::<EvictionStats>::zero();
        self.evictions.set(slot, evictions, 0)?;
        let samples = Shared::<Updated<SampleStats>>::zero();
        self.samples.set(slot, samples, 0)?;
        let cpus = aya::util::nr_cpus()
            .map_err(|(what, error)| ProbeError::Load(format!("cannot read {what}: {error}")))?;
        let faults = vec![Shared::<FaultCounts>::zero(); cpus];
        let faults =
            PerCpuValues::try_from(faults).map_err(|error| ProbeError::Load(error.to_string()))?;
        self.faults.set(slot, faults, 0)?;
        self.eviction_bins.set(slot, Shared(BinRing::ZERO), 0)?;
        self.cpu_bins.set(slot, Shared([BinRing::ZERO; 2]), 0)?;
        self.configs.set(slot, Shared(config), 0)?;
        self.slots.insert(config.tgid, slot, 0)?;
        Ok(())
    }

    /// Switches off the slot of process `pid`: from now on nothing is counted in it.
    pub fn switch_off(&mut self, slot: u32, pid: u32) {
        let switched_off = self.configs.set(slot, Shared(ServerConfig::OFF), 0);
        let removed = self.slots.remove(&pid);
        if let Err(error) = switched_off.and(removed) {
            tracing::debug!(pid, slot, %error, "slot was not cleared");
        }
    }

    /// Copies what was counted in a slot, of as many traced functions.
    ///
    /// # Errors
    ///
    /// Where a map cannot be read.
    pub fn read(&self, slot: u32, functions: u16) -> Result<Snapshot, ProbeError> {
        let (eviction, evictions) = self.read_eviction(slot)?;
        let mut calls = vec![eviction];
        for function in 1..functions {
            let index = calls_index(slot, function);
            calls.push(untorn(|| Ok(self.calls.get(&index, 0)?.0))?);
        }
        let by_cpu = self.faults.get(&slot, 0)?;
        Ok(Snapshot {
            calls,
            evictions,
            samples: untorn(|| Ok(self.samples.get(&slot, 0)?.0))?,
            faults: std::array::from_fn(|fault| by_cpu.iter().map(|counts| counts.0[fault]).sum()),
            idle_members: None,
        })
    }

    /// Copies the two structures that are updated together. They belong together where no update
    /// began until both were copied.
    fn read_eviction(&self, slot: u32) -> Result<(CallStats, EvictionStats), ProbeError> {
        let index = calls_index(slot, EVICTION);
        let mut before = self.calls.get(&index, 0)?.0;
        let mut evictions = self.evictions.get(&slot, 0)?.0;
        for _ in 0..MAX_TORN_COPIES {
            let after = self.calls.get(&index, 0)?.0;
            if before.is_whole() && after.begun == before.begun {
                break;
            }
            before = after;
            evictions = self.evictions.get(&slot, 0)?.0;
        }
        Ok((before.value, evictions))
    }

    /// Copies the last ten seconds of a slot in bins: time in evicting calls, and CPU time by
    /// `Activity`. A bin that is being written may be torn; the next copy has it whole.
    ///
    /// # Errors
    ///
    /// Where a map cannot be read.
    pub fn read_bins(&self, slot: u32) -> Result<(BinRing, [BinRing; 2]), ProbeError> {
        let evictions = self.eviction_bins.get(&slot, 0)?.0;
        let cpu = self.cpu_bins.get(&slot, 0)?.0;
        Ok((evictions, cpu))
    }
}

/// Copies until the copy is whole. After many tries the last one has to do, and the next reading is
/// right again.
fn untorn<T>(copy: impl Fn() -> Result<Updated<T>, ProbeError>) -> Result<T, ProbeError> {
    let mut last = copy()?;
    for _ in 0..MAX_TORN_COPIES {
        if last.is_whole() {
            break;
        }
        last = copy()?;
    }
    Ok(last.value)
}
