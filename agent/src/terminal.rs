//! Writes what people read, and hears when they want no more. Nothing else in this program writes to stdout or stderr
//! (`clippy.toml`).
//!
//! A terminal obeys what it gets, so everything is made printable first. Nobody need read it: a command whose reader
//! has gone ends, and what is said on stderr is lost where it cannot be written, or would have to wait.

use std::convert::Infallible;
use std::io::{self, IsTerminal as _, Stdout, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evictscope_host::printable;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest line of the log: a pipe that can be written to takes as many bytes at once (`PIPE_BUF`).
const LONGEST: usize = 4_096;
/// How long a line waits for its reader. After one that waited in vain, none waits.
const PATIENCE: Duration = Duration::from_millis(100);

/// Prints lines on stdout. A reader that has seen enough (`| head`) is not a failure. Fails if it cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    match try_print(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Prints lines on stdout at once, so that a pipe gets them, too. Fails if it cannot be written, or nobody reads it any
/// longer.
pub fn try_print(text: &str) -> io::Result<()> {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    write(lines.join("\n").as_bytes())
}

/// Writes a file to stdout as it is, unless that is a terminal. Fails if it cannot be written, or nobody reads it any
/// longer.
pub fn document(bytes: &[u8]) -> io::Result<()> {
    if is_terminal() { try_print(&String::from_utf8_lossy(bytes)) } else { write(bytes) }
}

pub fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Returns whether nobody reads stdout any longer.
pub fn has_no_reader() -> bool {
    let stdout = stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let is_ready = poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
    is_ready && fds[0].revents().contains(PollFlags::ERR)
}

#[expect(clippy::disallowed_methods, reason = "the only place that takes it")]
fn stdout() -> Stdout {
    io::stdout()
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Says something in one line on stderr.
pub fn note(text: &str) {
    static LOST: Mutex<u64> = Mutex::new(0);
    let mut lost = LOST.lock();
    #[expect(clippy::disallowed_methods, reason = "the only place that takes it")]
    let mut stderr = io::stderr();
    let before = match *lost {
        0 => String::new(),
        lost => format!("{lost} lines were lost here, as nobody took them\n"),
    };
    let mut line = before + &printable(text.trim_end());
    line.truncate(line.floor_char_boundary(LONGEST - 1));
    line.push('\n');
    let patience = Timespec::try_from(if *lost == 0 { PATIENCE } else { Duration::ZERO }).ok();
    // A process that may not ask writes.
    let is_ready = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], patience.as_ref()).map_or(true, |ready| ready > 0);
    if is_ready && stderr.write_all(line.as_bytes()).is_ok() { *lost = 0 } else { *lost += 1 }
}

/// Where the log goes. Each event is written at once.
pub struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        note(&String::from_utf8_lossy(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says when SIGINT, SIGTERM or SIGHUP came: then the other end of this is gone.
pub struct EndSignals(Receiver<Infallible>);

impl EndSignals {
    /// Begins to listen. From then on these signals do not end the process by themselves, so that it can take off its
    /// probes.
    pub fn listen() -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        let mut sender = Some(sender);
        ctrlc::set_handler(move || drop(sender.take())).context("cannot handle signals")?;
        Ok(Self(receiver))
    }

    /// Waits until `deadline`, or until the command must end; returns whether it must.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => has_no_reader(),
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }
}
