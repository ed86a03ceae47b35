//! The main threads of servers: their times, and whether they do anything. One thread looks at those of all calm
//! servers: waking a thread of each ten times a second would cost more than what it reads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evictscope_host::Scheduling;
use evictscope_telemetry::{Calm, Rest, ThreadReading, ThreadTimes};

use super::pace::{INTERVAL, Stop};
use crate::clock::monotonic;

/// The main thread of one server, which is read again and again.
pub struct MainThread {
    pub scheduling: Scheduling,
    pub rest: Rest,
    calm: Calm,
    /// Whether the server did too little, until the last reading, for anything else to be read soon.
    pub is_calm: bool,
}

/// What one reading of it says, together with those before.
#[derive(Clone, Copy)]
pub struct Followed {
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

    /// Notes that everything about the server is read now.
    pub fn read_all(&mut self, now: &Followed) {
        self.calm.read_all(&now.reading);
    }
}

/// How long a server waits for the lookout: after a second, everything must be read anyway.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread that looks. Clones share it.
#[derive(Clone)]
pub struct Lookout {
    calm: Sender<CalmServer>,
    thread: Arc<JoinHandle<()>>,
}

/// A server whose own thread is waiting.
struct CalmServer {
    main_thread: MainThread,
    /// Wakes that thread.
    back: Sender<MainThread>,
}

impl Lookout {
    /// Starts the thread, which ends when the agent is about to. Fails if no thread can be started.
    pub fn start(stop: Stop) -> std::io::Result<Self> {
        let (calm, new) = channel();
        let thread = std::thread::Builder::new().name("lookout".to_owned()).spawn(move || look(&new, &stop))?;
        Ok(Self { calm, thread: Arc::new(thread) })
    }

    /// Has a main thread looked at until its server is no longer calm, and returns it then. Returns `None` if the agent
    /// is about to end, or another server holds up the lookout: the kernel blocks anyone who reads where a process
    /// sleeps while that process executes another program, which may take as long as the process likes.
    pub fn follow(&self, main_thread: MainThread) -> Option<MainThread> {
        let (back, woken) = channel();
        self.calm.send(CalmServer { main_thread, back }).ok()?;
        woken.recv_timeout(PATIENCE).ok()
    }

    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

fn look(new: &Receiver<CalmServer>, stop: &Stop) {
    let mut calm = Vec::new();
    while !stop.wait_until(Instant::now() + INTERVAL) {
        calm.extend(new.try_iter());
        let wakes = |server: &mut CalmServer| {
            let followed = server.main_thread.read(monotonic());
            followed.is_none_or(|followed| followed.is_due)
        };
        for server in calm.extract_if(.., wakes) {
            // Its thread may have stopped waiting.
            let _ = server.back.send(server.main_thread);
        }
    }
}
