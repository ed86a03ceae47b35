//! A child process that never outlives its owner.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process;

/// How long a child may take to end by itself once it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// A running child; dropping it ends it and waits for its end.
pub struct Owned {
    child: Child,
}

impl Owned {
    /// Starts `command`, without input, in a process group of its own: a Ctrl-C on the terminal is
    /// for the owner, who then ends its children in order.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `{}`", process::display(command)))?;
        Ok(Self { child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to end, waits, and kills it if it does not.
    pub fn stop(&mut self) {
        self.stop_with(Signal::TERM);
    }

    /// The same with another signal, for a program that sums up on Ctrl-C only.
    pub fn stop_with(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        // It is not reaped before `ended` says so: its pid cannot be another's.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        let asked = Instant::now();
        while asked.elapsed() < GRACE {
            if self.ended().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a child left in its log, to stand behind the news of its end.
pub fn log_text(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    match String::from_utf8_lossy(&text).trim_end() {
        "" => " and left nothing in its log".to_owned(),
        text => format!("; its log:\n{text}"),
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_is_gone() -> Result<()> {
        let owned = Owned::start(Command::new("sleep").arg("600"))?;
        let path = format!("/proc/{}", owned.pid());
        assert!(std::path::Path::new(&path).exists());
        drop(owned);
        assert!(!std::path::Path::new(&path).exists());
        Ok(())
    }
}
