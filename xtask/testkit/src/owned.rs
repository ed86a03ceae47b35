//! A child process that never outlives its owner.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use tempfile::NamedTempFile;

use crate::{
    process,
    wait::{HANG, until},
};

/// A running child, which is killed when this is dropped.
pub struct Owned {
    child: Mutex<Child>,
    pid: u32,
    name: String,
    log: NamedTempFile,
}

impl Owned {
    /// Starts `command` without input, and keeps what it writes in a log.
    pub fn start(command: &mut Command) -> Result<Self> {
        let log = NamedTempFile::new().context("cannot make a log file")?;
        let output = log.reopen().context("cannot open a log file")?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Self::spawn(command, log)
    }

    /// Starts `command` with pipes to its input and from its output.
    pub fn start_with_pipes(command: &mut Command) -> Result<(Self, ChildStdin, ChildStdout)> {
        let log = NamedTempFile::new().context("cannot make a log file")?;
        let errors = log.reopen().context("cannot open a log file")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let owned = Self::spawn(command, log)?;
        let mut child = owned.child();
        let pipes = (child.stdin.take(), child.stdout.take());
        drop(child);
        match pipes {
            (Some(input), Some(output)) => Ok((owned, input, output)),
            _ => bail!("{} has no pipes", owned.name),
        }
    }

    fn spawn(command: &mut Command, log: NamedTempFile) -> Result<Self> {
        if process::catches_ctrl_c() {
            // Then a Ctrl-C on the terminal is not for the child: its owner ends it in order.
            command.process_group(0);
        }
        let child = command.spawn().with_context(|| format!("cannot start `{}`", process::display(command)))?;
        let program = Path::new(command.get_program());
        let name = program.file_name().unwrap_or(program.as_os_str());
        Ok(Self { pid: child.id(), child: Mutex::new(child), name: name.to_string_lossy().into_owned(), log })
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        // A panic elsewhere leaves a child as it was.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Gives it a CPU before any process of ordinary priority.
    pub fn comes_first(&self) -> Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed());
        setpriority_process(pid, -20).with_context(|| format!("cannot raise the priority of {}", self.name))
    }

    /// Returns what it has written into its log.
    pub fn log(&self) -> Result<String> {
        let log = fs::read(self.log.path());
        let log = log.with_context(|| format!("cannot read the log of {}", self.name))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// Fails with its log if it has ended.
    pub fn must_be_alive(&self) -> Result<()> {
        let Some(status) = self.child().try_wait()? else {
            return Ok(());
        };
        bail!("{} ended ({status}){}", self.name, self.log_for_error());
    }

    fn log_for_error(&self) -> String {
        match self.log().unwrap_or_default().trim_end() {
            "" => " and left nothing in its log".to_owned(),
            log => format!("; its log:\n{log}"),
        }
    }

    /// Repeats `attempt` as [`until`] does, while the child lives.
    ///
    /// # Errors
    ///
    /// Also fails if the child ends; the error has its log.
    pub fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let attempt = || {
            self.must_be_alive()?;
            attempt()
        };
        until(what, attempt).or_else(|error| {
            self.must_be_alive()?;
            bail!("{error:#}: {}{}", self.name, self.log_for_error())
        })
    }

    /// Sends `signal`, and waits for nothing.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        // The process id cannot be another's, because the child has not been waited for.
        if child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&child), signal)?;
        }
        Ok(())
    }

    /// Sends `signal`, waits for the end and returns how it ended. A child that ignores the signal is
    /// killed.
    pub fn end(&self, signal: Signal) -> Result<ExitStatus> {
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // The process id cannot be another's, because the child has not been waited for.
        kill_process(Pid::from_child(&child), signal)?;
        let asked = Instant::now();
        while asked.elapsed() < HANG {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        child.kill()?;
        Ok(child.wait()?)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended already.
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_is_gone() -> Result<()> {
        let owned = Owned::start(Command::new("sleep").arg("600"))?;
        let path = format!("/proc/{}", owned.pid());
        assert!(Path::new(&path).exists());
        drop(owned);
        assert!(!Path::new(&path).exists());
        Ok(())
    }

    #[test]
    fn a_child_that_ended_leaves_its_log_in_the_error() -> Result<()> {
        let owned = Owned::start(Command::new("sh").args(["-c", "echo because; exit 3"]))?;
        let never = || Ok(None::<()>);
        let ended = owned.until("it never happens", never);
        let error = ended.map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("because")));
        Ok(())
    }
}
