//! Running commands to their end, quietly for their answer or with progress shown, and child processes that never
//! outlive their owner.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{
    Pid, Signal, kill_current_process_group, kill_process, set_parent_process_death_signal, setpriority_process, setsid,
};
use tempfile::NamedTempFile;

use crate::text::Progress;
use crate::wait::until;

/// Whether Ctrl-C is for this program to handle.
static CATCHES_CTRL_C: AtomicBool = AtomicBool::new(false);

/// Gives this process, and all that it starts from now on, a CPU before processes of other sessions: between sessions,
/// priorities do not count (`sched_autogroup` of sched(7)). Changes nothing if this process leads a group, because it
/// then stays in its session.
pub fn comes_before_other_sessions() -> Result<()> {
    const PRIORITY: &str = "/proc/self/autogroup";
    if setsid().is_err() {
        return Ok(());
    }
    // The terminal's Ctrl-C no longer comes here. It ends the parent, and that ends this process and all that it has
    // started.
    ctrlc::set_handler(|| {
        // This process ends all the same.
        let _ = kill_current_process_group(Signal::TERM);
        std::process::exit(1)
    })
    .context("cannot catch Ctrl-C")?;
    set_parent_process_death_signal(Some(Signal::INT)).context("cannot follow the parent process")?;
    if !Path::new(PRIORITY).exists() {
        return Ok(());
    }
    fs::write(PRIORITY, "-20").context("cannot raise the priority of the session")
}

/// Runs a command and shows its progress. If the command fails, the error has all that it wrote.
pub fn succeed(command: &mut Command) -> Result<()> {
    succeed_as(&display(command), command).map(drop)
}

/// Does the same with the progress under `label`: on a terminal a spinner with the time and the last line that it
/// wrote, elsewhere a line now and then. Returns what the command wrote to stdout and stderr, in the order it wrote it.
pub fn succeed_as(label: &str, command: &mut Command) -> Result<String> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot duplicate a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start `{}`", display(command)))?;
    // The command holds our ends of the pipe; the reader sees the end only without them.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let (sender, lines) = mpsc::channel();
    let collector = thread::spawn(move || {
        let mut output = String::new();
        for line in BufReader::new(reader).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            output.push_str(&line);
            output.push('\n');
            // The receiver outlives this thread.
            let _ = sender.send(line.trim().to_owned());
        }
        output
    });

    let progress = Progress::start(label);
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => progress.show(line),
            Err(RecvTimeoutError::Timeout) => progress.show(String::new()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{}`", display(command)))?;
    progress.finish();
    let output = collector.join().unwrap_or_default();
    ensure!(status.success(), "{}\n`{}` failed ({status})", output.trim_end(), display(command));
    Ok(output)
}

/// Runs a command quietly and returns what it wrote to stdout. If the command fails, the error has what it wrote to
/// stderr.
pub fn answer_of(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", display(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}): {}", display(command), output.status, complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Keeps Ctrl-C from ending this program, and returns the flag that it sets instead. The caller looks at
/// the flag and ends everything in order.
pub fn catch_ctrl_c() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    CATCHES_CTRL_C.store(true, Ordering::Relaxed);
    Ok(interrupted)
}

/// Returns a command as one would type it.
pub fn display(command: &Command) -> String {
    let variables =
        command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.display(), quoted(value?))));
    // rustup's `cargo` sets `CARGO` to the path of the real one.
    let words = Path::new(command.get_program()).file_name().into_iter().chain(command.get_args());
    variables.chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    // Only a word with a NUL cannot be quoted, and no command has one.
    shlex::try_quote(&word.to_string_lossy()).unwrap_or_default().into_owned()
}

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

    pub fn start_with_pipes(command: &mut Command) -> Result<(Self, ChildStdin, ChildStdout)> {
        let log = NamedTempFile::new().context("cannot make a log file")?;
        let errors = log.reopen().context("cannot open a log file")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let owned = Self::spawn(command, log)?;
        let pipes = {
            let mut child = owned.child();
            child.stdin.take().zip(child.stdout.take())
        };
        let (input, output) = pipes.with_context(|| format!("{} has no pipes", owned.name))?;
        Ok((owned, input, output))
    }

    fn spawn(command: &mut Command, log: NamedTempFile) -> Result<Self> {
        if CATCHES_CTRL_C.load(Ordering::Relaxed) {
            // Then a Ctrl-C on the terminal is not for the child: its owner ends it in order.
            command.process_group(0);
        }
        let child = command.spawn().with_context(|| format!("cannot start `{}`", display(command)))?;
        let program = Path::new(command.get_program());
        let name = program.file_name().unwrap_or(program.as_os_str());
        Ok(Self { pid: child.id(), child: Mutex::new(child), name: name.to_string_lossy().into_owned(), log })
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        // A panic elsewhere leaves a child as it was.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Gives it a CPU before any process of ordinary priority: what stalls a server's clients is then its own doing.
    pub fn comes_first(&self) -> Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed());
        setpriority_process(pid, -20).with_context(|| format!("cannot raise the priority of {}", self.name))
    }

    pub fn log(&self) -> Result<String> {
        let log = fs::read(self.log.path()).with_context(|| format!("cannot read the log of {}", self.name))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    pub fn must_be_alive(&self) -> Result<()> {
        match self.child().try_wait()? {
            Some(status) => bail!("{} ended ({status}){}", self.name, self.log_for_error()),
            None => Ok(()),
        }
    }

    /// Fails with its log if it has ended with an error.
    pub fn must_not_have_failed(&self) -> Result<()> {
        if self.child().try_wait()?.is_some_and(|status| !status.success()) {
            self.must_be_alive()?;
        }
        Ok(())
    }

    fn log_for_error(&self) -> String {
        match self.log().unwrap_or_default().trim_end() {
            "" => " and left nothing in its log".to_owned(),
            log => format!("; its log:\n{log}"),
        }
    }

    /// Repeats `attempt` as [`until`] does, while the child lives. If that fails, the error has its log.
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

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        // The process id cannot be another's, because the child has not been waited for.
        if child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&child), signal)?;
        }
        Ok(())
    }

    /// Ends it by SIGTERM, and fails with its log if it does not end well.
    pub fn end_well(&self) -> Result<()> {
        let status = self.end(Signal::TERM)?;
        ensure!(status.success(), "{} ended ({status}){}", self.name, self.log_for_error());
        Ok(())
    }

    /// Sends `signal`, waits for the end and returns how it ended. A child that ignores the signal is
    /// killed.
    pub fn end(&self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        until("it ends", || Ok(self.child().try_wait()?)).or_else(|_| {
            self.child().kill()?;
            Ok(self.child().wait()?)
        })
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
    fn output_is_kept_in_order_and_a_failure_says_why() -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three"]);
        assert_eq!(succeed_as("test", &mut command)?, "one\ntwo\nthree\n");
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo why >&2; exit 3"]);
        for error in [succeed_as("test", &mut failing).err(), answer_of(&mut failing).err()] {
            assert!(error.is_some_and(|error| error.to_string().contains("why") && error.to_string().contains(": 3")));
        }
        Ok(())
    }

    #[test]
    fn a_command_reads_as_one_would_type_it() {
        let mut command = Command::new("cargo");
        command.args(["test", "--test", "e2e_*"]).env("A", "b");
        assert_eq!(display(&command), "A=b cargo test --test 'e2e_*'");
    }

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
        let error = owned.until("it never happens", || Ok(None::<()>)).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("because")));
        Ok(())
    }
}
