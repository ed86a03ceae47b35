//! What ends a trace before its time: a signal, and a reader that is gone.

use std::io::stdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

/// Says when SIGINT, SIGTERM or SIGHUP came.
pub struct Ending(Receiver<()>);

impl Ending {
    /// Begins to listen. From then on these signals do not end the process by themselves, so that it can take its probes
    /// off.
    ///
    /// # Errors
    ///
    /// Fails where the kernel does not let it listen.
    pub fn listen() -> anyhow::Result<Self> {
        let (tell, told) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the asynchronous runtime")?;
        let signals = {
            let _inside = runtime.enter();
            let of = |kind| signal(kind).context("cannot handle signals");
            [
                of(SignalKind::interrupt())?,
                of(SignalKind::terminate())?,
                of(SignalKind::hangup())?,
            ]
        };
        let listen = move || {
            let [mut interrupt, mut terminate, mut hangup] = signals;
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            // Nobody listens where the trace has ended.
            let _ = tell.send(());
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .context("cannot start a thread")?;
        Ok(Self(told))
    }

    /// Waits until `deadline`, or until the trace is to end; returns whether it is.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let rest = deadline.saturating_duration_since(Instant::now());
        match self.0.recv_timeout(rest) {
            Ok(()) => true,
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
