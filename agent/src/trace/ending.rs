//! What ends a command before its time: a signal, and a reader that is gone.

use std::cell::Cell;
use std::io::stdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Says when SIGINT, SIGTERM or SIGHUP came.
pub struct Ending {
    told: Receiver<()>,
    /// Whether one came: also whoever asks later is told.
    has_come: Cell<bool>,
}

impl Ending {
    /// Begins to listen. From then on these signals do not end the process by themselves, so that it can take its probes
    /// off.
    pub fn listen() -> anyhow::Result<Self> {
        let (tell, told) = channel();
        // Nobody listens where the trace has ended.
        let handle = move || _ = tell.send(());
        ctrlc::set_handler(handle).context("cannot handle signals")?;
        Ok(Self {
            told,
            has_come: Cell::new(false),
        })
    }

    /// Waits until `deadline`, or until the trace is to end; returns whether it is.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        if self.has_come.get() {
            return true;
        }
        let rest = deadline.saturating_duration_since(Instant::now());
        match self.told.recv_timeout(rest) {
            Ok(()) => {
                self.has_come.set(true);
                true
            }
            Err(RecvTimeoutError::Timeout) => is_closed(),
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }
}

/// Tells whether nobody reads stdout any more.
fn is_closed() -> bool {
    let stdout = stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec::try_from(Duration::ZERO).ok();
    let is_ready = poll(&mut fds, now.as_ref()).is_ok_and(|ready| ready > 0);
    is_ready && fds[0].revents().contains(PollFlags::ERR)
}
