//! The loaded programs, the slots that servers have in their maps, and their log: aya-log's records, each with the
//! process that it is about.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use aya::Ebpf;
use aya_log::EbpfLogger;
use evictscope_abi::MAX_SERVERS;
use log::{Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};

use super::error::ProbeError;
use super::keeper::LinkKeeper;
use super::maps::Maps;
use super::programs::{Programs, load, names};

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
    /// that time. Fails if the kernel does not allow it or refuses a program.
    pub fn load(keeper: &LinkKeeper, run_delay: Option<u32>) -> Result<Arc<Self>, ProbeError> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-programs"));
        let mut ebpf = load(object)?;
        // Before the log is opened, which takes a map that these programs use.
        let multi = Programs::by_multi_links(keeper, object, &ebpf, names())?;
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
        self.programs.keeper.has_failed()
    }

    /// Has the keeper go on if something has stopped it. Returns whether it is stopped all the same: nothing can be
    /// attached.
    pub fn is_keeper_stopped(&self) -> bool {
        self.programs.keeper.is_stopped()
    }

    /// Waits until every probe is off, and lets no more be attached. Then waits for the threads of servers. Fails if
    /// one of those threads has not ended after a minute: it hangs.
    pub fn finish(&self) -> Result<(), ProbeError> {
        self.slots.lock().is_closed = true;
        self.programs.keeper.end();
        let is_used = |slots: &mut Slots| slots.free.len() < MAX_SERVERS as usize;
        let mut slots = self.slots.lock();
        let timeout = self.given_back.wait_while_for(&mut slots, is_used, PATIENCE);
        if timeout.timed_out() { Err(ProbeError::Stuck(MAX_SERVERS as usize - slots.free.len())) } else { Ok(()) }
    }

    /// Returns what the programs have reported since the last call.
    pub fn messages(&self) -> Vec<KernelMessage> {
        self.log.lock().as_mut().map(KernelLog::messages).unwrap_or_default()
    }
}

impl Slot {
    pub fn take(probes: &Arc<Probes>) -> Result<Self, ProbeError> {
        let mut slots = probes.slots.lock();
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
        self.probes.slots.lock().free.push(self.number);
        self.probes.given_back.notify_all();
    }
}

/// Something that a program reports about a server.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelMessage {
    pub pid: u32,
    pub text: String,
}

impl KernelMessage {
    /// Parses a record's text, which begins with the process id.
    fn parse(record: &str) -> Option<Self> {
        let (pid, text) = record.split_once(": ")?;
        Some(Self { pid: pid.parse().ok()?, text: text.to_owned() })
    }
}

struct KernelLog {
    logger: EbpfLogger<Collector>,
    records: Receiver<String>,
}

impl KernelLog {
    /// Opens the log of an object. Warns and returns `None` if it has none.
    fn open(ebpf: &mut Ebpf) -> Option<Self> {
        let (sender, records) = channel();
        match EbpfLogger::init_with_logger(ebpf, Collector(sender)) {
            Ok(logger) => Some(Self { logger, records }),
            Err(error) => {
                tracing::warn!(
                    "the BPF programs have no log ({error}): when a check fails, the values that \
                     disagree will not be logged"
                );
                None
            }
        }
    }

    fn messages(&mut self) -> Vec<KernelMessage> {
        self.logger.flush();
        self.records.try_iter().filter_map(|record| KernelMessage::parse(&record)).collect()
    }
}

/// Collects the records that aya-log reads, so that the agent can add names to them.
struct Collector(Sender<String>);

impl Log for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // The receiver lives as long as this.
        let _ = self.0.send(record.args().to_string());
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::KernelMessage;

    #[test]
    fn a_record_names_the_process_that_it_is_about() {
        let expected = KernelMessage { pid: 123, text: "maxmemory is 5: not 6".to_owned() };
        assert_eq!(KernelMessage::parse("123: maxmemory is 5: not 6"), Some(expected));
        assert_eq!(KernelMessage::parse("no process: here"), None);
    }
}
