//! The loaded programs, and the slots that servers have in their maps.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use evictscope_abi::MAX_SERVERS;

use super::error::ProbeError;
use super::keeper::LinkKeeper;
use super::loading::load;
use super::log::{KernelLog, Message};
use super::maps::Maps;
use super::own::own_sites;
use super::programs::{Programs, names};

/// How long to wait at the end for threads, which by then only have to hand over what they have.
const PATIENCE: Duration = Duration::from_secs(60);

/// The loaded programs and their maps. Threads share them.
pub struct Probes {
    pub(super) programs: Programs,
    pub(super) maps: Maps,
    pub(super) run_delay: Option<u32>,
    log: Mutex<Option<KernelLog>>,
    slots: Mutex<Slots>,
    given_back: Condvar,
}

struct Slots {
    free: Vec<u32>,
    /// No more slots are given out: the agent is about to end.
    is_closed: bool,
}

/// A server's slot in the maps. Dropping it gives it back.
pub(super) struct Slot {
    pub probes: Arc<Probes>,
    pub number: u32,
}

impl Probes {
    /// Loads the programs into the kernel, for `keeper` to attach. `run_delay` is the offset in bytes, in the kernel's
    /// `task_struct`, of the time for which a thread has waited for a CPU. Without it, the durations of calls include
    /// that time.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not allow it or refuses a program.
    pub fn load(keeper: &LinkKeeper, run_delay: Option<u32>) -> Result<Arc<Self>, ProbeError> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-programs"));
        let mut ebpf = load(object)?;
        let [site, ..] = own_sites()?;
        // Before the log is opened, which takes a map that these programs use.
        let multi = Programs::by_multi_links(keeper, object, &ebpf, names(), site)?;
        let log = KernelLog::open(&mut ebpf);
        Ok(Arc::new(Self {
            maps: Maps::of(&ebpf)?,
            run_delay,
            programs: match multi {
                Some(programs) => programs,
                None => Programs::by_perf_events(keeper, ebpf, names())?,
            },
            log: Mutex::new(log),
            slots: Mutex::new(Slots { free: (0..MAX_SERVERS).rev().collect(), is_closed: false }),
            given_back: Condvar::new(),
        }))
    }

    /// Returns whether probes are attached by uprobe_multi links (Linux 6.6) rather than perf events. The first link,
    /// on this process, has shown it.
    pub fn has_multi_links(&self) -> bool {
        self.programs.has_multi_links()
    }

    /// Returns whether the keeper has ended before this process. If so, no probe is left.
    pub fn has_lost_keeper(&self) -> bool {
        self.programs.keeper().has_failed()
    }

    /// Has the keeper go on if something has stopped it. Returns whether it is stopped all the same: nothing can be
    /// attached.
    pub fn is_keeper_stopped(&self) -> bool {
        self.programs.keeper().is_stopped()
    }

    /// Waits until every probe is off, and lets no more be attached. Then waits for the threads of servers.
    ///
    /// # Errors
    ///
    /// Fails if one of those threads has not ended after a minute: it hangs.
    pub fn finish(&self) -> Result<(), ProbeError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.is_closed = true;
        drop(slots);
        self.programs.keeper().end();
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_used = |slots: &mut Slots| slots.free.len() < MAX_SERVERS as usize;
        let waited = self.given_back.wait_timeout_while(slots, PATIENCE, is_used);
        let (slots, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        match timeout.timed_out() {
            true => Err(ProbeError::Stuck(MAX_SERVERS as usize - slots.free.len())),
            false => Ok(()),
        }
    }

    /// Returns what the programs have reported since the last call.
    pub fn messages(&self) -> Vec<Message> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.as_mut().map(KernelLog::messages).unwrap_or_default()
    }
}

impl Slot {
    /// Takes a free slot.
    pub fn take(probes: &Arc<Probes>) -> Result<Self, ProbeError> {
        let mut slots = probes.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_closed {
            return Err(ProbeError::Ending);
        }
        let number = slots.free.pop();
        Ok(Self { number: number.ok_or(ProbeError::TooManyServers(MAX_SERVERS))?, probes: probes.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.probes.maps.switch_off(self.number);
        let slots = &self.probes.slots;
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.push(self.number);
        self.probes.given_back.notify_all();
    }
}
