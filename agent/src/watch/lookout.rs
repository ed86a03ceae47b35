//! Looks at the main threads of all calm servers, in one thread. Waking a thread of each ten times a second would cost
//! more than what it reads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::main_thread::MainThread;
use super::pace::INTERVAL;
use super::stop::Stop;
use crate::clock::monotonic;

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
    /// Starts the thread, which ends when the agent is about to.
    ///
    /// # Errors
    ///
    /// Fails if no thread can be started.
    pub fn start(stop: Stop) -> std::io::Result<Self> {
        let (calm, new) = channel();
        let thread = std::thread::Builder::new().name("lookout".to_owned());
        let thread = thread.spawn(move || look(&new, &stop))?;
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

    /// Returns whether the thread has ended.
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
