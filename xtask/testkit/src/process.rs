//! Running commands to their end: quietly for their answer, or with progress shown and their output kept.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Signal, kill_current_process_group, set_parent_process_death_signal, setsid};

use crate::progress::Progress;

/// Whether Ctrl-C is for this program to handle.
static CATCHES_CTRL_C: AtomicBool = AtomicBool::new(false);

/// Gives this process, and all that it starts from now on, a CPU before processes of other sessions: between sessions,
/// priorities do not count (`sched_autogroup` of sched(7)).
///
/// Changes nothing if this process leads a group, because it then stays in its session.
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

/// Runs a command quietly and returns what it wrote to stdout.
///
/// # Errors
///
/// Fails if the command does, with what it wrote to stderr.
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

/// Returns whether [`catch_ctrl_c`] has been called.
pub(crate) fn catches_ctrl_c() -> bool {
    CATCHES_CTRL_C.load(Ordering::Relaxed)
}

/// Returns a command as one would type it.
pub fn display(command: &Command) -> String {
    let variables =
        command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.display(), quoted(value?))));
    // rustup's `cargo` sets `CARGO` to the path of the real one.
    let program = Path::new(command.get_program()).file_name();
    let words = program.into_iter().chain(command.get_args());
    let words = variables.chain(words.map(quoted));
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    // Only a word with a NUL cannot be quoted, and no command has one.
    shlex::try_quote(&word).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_kept_in_order_with_the_status() -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three"]);
        assert_eq!(succeed_as("test", &mut command)?, "one\ntwo\nthree\n");
        let error = succeed_as("test", Command::new("sh").args(["-c", "echo why; exit 3"]));
        let error = error.err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("why") && error.contains(": 3")));
        Ok(())
    }

    #[test]
    fn a_command_reads_as_one_would_type_it() {
        let mut command = Command::new("cargo");
        command.args(["test", "--test", "e2e_*"]).env("A", "b");
        assert_eq!(display(&command), "A=b cargo test --test 'e2e_*'");
    }

    #[test]
    fn a_failed_command_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 1"]);
        let error = answer_of(&mut command).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.ends_with(": because")));
    }
}
