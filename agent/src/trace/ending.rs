//! What ends a command early: a signal, or a reader that is gone.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::Context as _;

use crate::terminal::has_no_reader;

/// Says when SIGINT, SIGTERM or SIGHUP came: then the other end of this is gone.
pub struct Ending(Receiver<Infallible>);

impl Ending {
    /// Begins to listen. From then on these signals do not end the process by themselves, so that it can take off its
    /// probes.
    pub fn listen() -> anyhow::Result<Self> {
        let (tell, told) = channel();
        let mut tell = Some(tell);
        let handle = move || drop(tell.take());
        ctrlc::set_handler(handle).context("cannot handle signals")?;
        Ok(Self(told))
    }

    /// Waits until `deadline`, or until the command must end; returns whether it must.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let rest = deadline.saturating_duration_since(Instant::now());
        match self.0.recv_timeout(rest) {
            Err(RecvTimeoutError::Timeout) => has_no_reader(),
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }
}
