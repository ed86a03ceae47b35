//! Finds out how a server has ended.
//!
//! The exit code of a process goes to its parent. Since Linux 6.15 the kernel also keeps it for those who hold a pidfd;
//! before, it can be read for as long as the parent has not taken it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_host::{HostKills, OomGroup, ProcessHandle, Remains};
use evictscope_probes::exit_code;
use evictscope_records::Ending;
use parking_lot::Mutex;
use rustix::process::Signal;

use super::pace::Stop;
use super::recorder::Allowance;

/// The most records of ended servers to make at once: a host with many servers may lose them all.
const RECORDS: f64 = 50.0;
/// The time in which one more may be made. A server that is started again and again must not push out all other
/// records.
const RECORD_EVERY: Duration = Duration::from_secs(600);
/// How long to wait until a process has freed its memory.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What all servers share. Clones share it.
#[derive(Clone, Default)]
pub struct Endings(Arc<Mutex<Inner>>);

struct Inner {
    host: HostKills,
    records: Allowance,
}

impl Default for Inner {
    fn default() -> Self {
        Self { host: HostKills::default(), records: Allowance::new(RECORDS, RECORD_EVERY) }
    }
}

impl Endings {
    /// Reads how many processes the OOM killer has killed on this host. Call it once a second.
    pub fn follow(&self) {
        self.0.lock().host.follow();
    }

    /// Returns whether a record may be made of a server that ended like this at the monotonic time `at`. Half of those
    /// at once are kept for servers with which something was wrong.
    pub fn may_record(&self, at: Duration, ending: Ending) -> bool {
        let reserve = if ending.is_clean() { RECORDS / 2.0 } else { 0.0 };
        self.0.lock().records.take(at, reserve)
    }
}

/// What must be known of one server while it lives.
pub struct Fate {
    endings: Endings,
    group: OomGroup,
    /// The host's counter when that of the group was last read.
    as_of: Option<u64>,
}

impl Fate {
    /// Begins with a process that lives.
    pub fn of(pid: u32, endings: &Endings) -> Self {
        let as_of = endings.0.lock().host.count();
        Self { endings: endings.clone(), group: OomGroup::of(pid), as_of }
    }

    /// Notes that the server lives. Reads its control group's counters if the OOM killer has killed since, but not of
    /// late: the server itself may be about to end.
    pub fn lives(&mut self) {
        let host = self.endings.0.lock().host;
        if host.count() != self.as_of && !host.rose() {
            self.as_of = host.count();
            self.group.follow();
        }
    }

    /// Returns how a server whose memory is gone has ended. Returns `None` if it executes another program instead.
    /// Waits for one that is still about to end, but not if the agent is, too.
    pub fn find(&self, process: &ProcessHandle, stop: &Stop) -> Option<Ending> {
        let until = Instant::now() + PATIENCE;
        let exited = || process.pidfd().and_then(exit_code).map(|code| self.ending(code));
        loop {
            if let Some(ending) = exited() {
                return Some(ending);
            }
            match process.remains() {
                Remains::Zombie(code) => return Some(self.ending(code)),
                Remains::AnotherProgram => return None,
                // Its parent may have taken its exit code just now.
                Remains::Nothing => return Some(exited().unwrap_or_else(|| self.likely())),
                Remains::Exiting => {
                    let now = Instant::now();
                    if now > until || stop.wait_until(now + LOOK_INTERVAL) {
                        return Some(self.likely());
                    }
                }
            }
        }
    }

    /// Returns what the counters alone say.
    fn likely(&self) -> Ending {
        match self.oom() {
            Some((Some(true), of_group)) => Ending::Oom { of_group },
            _ => Ending::Unknown,
        }
    }

    fn ending(&self, code: i32) -> Ending {
        let [status, signal, ..] = [code >> 8 & 0xff, code & 0x7f].map(|part| part as u8);
        match signal {
            0 => Ending::Exit { status },
            number if i32::from(number) == Signal::KILL.as_raw() => match self.oom() {
                Some((None | Some(true), of_group)) => Ending::Oom { of_group },
                _ => Ending::Signal { number },
            },
            number => Ending::Signal { number },
        }
    }

    /// Returns what the counters of its control group say, as [`OomGroup::killed`], if the OOM killer has killed of
    /// late.
    fn oom(&self) -> Option<(Option<bool>, Option<bool>)> {
        let mut endings = self.endings.0.lock();
        endings.host.follow();
        let rose = endings.host.rose();
        drop(endings);
        rose.then(|| self.group.killed())
    }
}
