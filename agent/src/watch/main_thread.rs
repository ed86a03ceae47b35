//! The main thread of a server: its times, and whether it does anything.

use std::time::Duration;

use evictscope_host::Scheduling;
use evictscope_telemetry::{Calm, Rest, ThreadReading, ThreadTimes};

/// The main thread of one server, which is read again and again.
pub struct MainThread {
    scheduling: Scheduling,
    rest: Rest,
    calm: Calm,
    is_calm: bool,
}

/// What one reading of it says, together with those before.
#[derive(Clone, Copy)]
pub struct Followed {
    /// What was read.
    pub reading: ThreadReading,
    /// Its times, including a wait for a CPU that is under way.
    pub times: ThreadTimes,
    /// Whether everything else must be read too, even if nobody waits for what the server does.
    pub is_due: bool,
}

impl MainThread {
    /// Returns the main thread of a process. Returns `None` if it has ended, or the kernel does not count its times.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { scheduling: Scheduling::of(pid)?, rest: Rest::default(), calm: Calm::default(), is_calm: false })
    }

    /// Reads it, at the monotonic time `at`. Returns `None` if the process has ended.
    pub fn read(&mut self, at: Duration) -> Option<Followed> {
        let (cpu_ns, waiting_ns) = self.scheduling.times_ns()?;
        let is_resting = self.scheduling.is_resting();
        let reading = ThreadReading {
            at,
            times: ThreadTimes { cpu_ns, waiting_ns },
            is_resting,
            // It costs more than the rest, and says nothing about a thread that sleeps.
            sleeps: (is_resting.is_none()).then(|| self.scheduling.sleeps()).flatten(),
        };
        let times = self.rest.follow(reading);
        self.is_calm = self.calm.is_calm(&reading);
        Some(Followed { reading, times, is_due: self.calm.is_due(&reading) })
    }

    /// Returns whether the server did too little, until the last reading, for anything else to be read soon.
    pub fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Notes that everything about the server is read now.
    pub fn read_all(&mut self, now: &Followed) {
        self.calm.read_all(&now.reading);
    }

    /// Returns the last readings at which it was at rest, oldest first.
    pub fn rests(&self) -> Vec<Duration> {
        self.rest.rests()
    }

    /// Returns for how many nanoseconds its child was on a CPU, as [`Scheduling::child_ns`].
    pub fn child_ns(&self) -> Option<u64> {
        self.scheduling.child_ns()
    }
}
