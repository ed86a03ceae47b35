//! Running commands: quietly for their answer, or with progress shown and their output kept.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, IsTerminal as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

/// Where nobody watches a spinner, a sign of life goes to the log this often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// A command that ran to its end.
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stdout and stderr, in the order it wrote it.
    pub output: String,
}

/// Runs a command to its end, showing that it is at work: on a terminal a spinner with the time
/// and the last line it wrote, elsewhere a line now and then.
pub fn run_with_progress(label: &str, command: &mut Command) -> Result<Finished> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("cannot duplicate a pipe")?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{}`", display(command)))?;
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
            // Nobody listens any more once the command has ended.
            let _ = sender.send(line.trim().to_owned());
        }
        output
    });

    let progress = Progress::start(label);
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => progress.show(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress.sign_of_life();
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{}`", display(command)))?;
    progress.finish();
    let output = collector.join().unwrap_or_default();
    Ok(Finished { status, output })
}

/// Runs a command to its end without a word, and returns what it wrote to stdout.
pub fn answer_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", display(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` failed ({}): {}",
            display(command),
            output.status,
            complaint.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// From now on, Ctrl-C does not end this program, but is noted: whoever asks ends everything in order.
pub fn catch_ctrl_c() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch Ctrl-C")?;
    Ok(interrupted)
}

/// A command as one would type it.
pub fn display(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.display(), quoted(value?))));
    let words = std::iter::once(short_name(command.get_program())).chain(command.get_args());
    variables
        .chain(words.map(quoted))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The name alone of a program that is found by its name, its path for any other. `CARGO` is the
/// path that rustup's `cargo` stands for.
fn short_name(program: &OsStr) -> &OsStr {
    let path = Path::new(program);
    let Some(name) = path.file_name() else {
        return program;
    };
    let by_name = which::which(name).is_ok_and(|found| found == path);
    let is_cargo = std::env::var_os("CARGO").is_some_and(|cargo| cargo == program);
    if by_name || is_cargo { name } else { program }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains([' ', '*', '"', '$']) {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}

/// How long something took, as `1.2 s` or `2 m 05 s`.
pub fn seconds(elapsed: Duration) -> String {
    if elapsed < Duration::from_secs(60) {
        format!("{:.1} s", elapsed.as_secs_f64())
    } else {
        format!(
            "{} m {:02} s",
            elapsed.as_secs() / 60,
            elapsed.as_secs() % 60
        )
    }
}

/// Shows that something is at work: on a terminal a spinner with the time and what was shown last,
/// elsewhere a line now and then.
pub struct Progress {
    label: String,
    bar: Option<ProgressBar>,
    started: Instant,
    state: std::cell::RefCell<LogState>,
}

struct LogState {
    last_line: String,
    told: Instant,
}

impl Progress {
    /// Begins to show it.
    pub fn start(label: &str) -> Self {
        let started = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) =
                ProgressStyle::with_template("  {spinner} {prefix} {elapsed} {wide_msg:.dim}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(label.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            label: label.to_owned(),
            bar,
            started,
            state: std::cell::RefCell::new(LogState {
                last_line: String::new(),
                told: started,
            }),
        }
    }

    /// What it is at now.
    pub fn show(&self, line: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(line);
        } else if !line.is_empty() {
            self.state.borrow_mut().last_line = line;
        }
    }

    /// To be called often: writes a line where there is no spinner and it is time for one.
    pub fn sign_of_life(&self) {
        let mut state = self.state.borrow_mut();
        if self.bar.is_none() && state.told.elapsed() >= SIGN_OF_LIFE {
            state.told = Instant::now();
            println!(
                "  {}: {} so far: {}",
                self.label,
                seconds(self.started.elapsed()),
                state.last_line
            );
        }
    }

    /// Writes a line that stays.
    pub fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    /// Ends the display.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_kept_in_order_and_the_status_told() -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let finished = run_with_progress("test", &mut command)?;
        assert_eq!(finished.output, "one\ntwo\nthree\n");
        assert_eq!(finished.status.code(), Some(3));
        Ok(())
    }

    #[test]
    fn a_command_reads_as_one_would_type_it() {
        let mut command = Command::new("cargo");
        command.args(["test", "--test", "e2e_*"]).env("A", "b");
        assert_eq!(display(&command), "A=b cargo test --test 'e2e_*'");
    }

    #[test]
    fn a_failed_question_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 1"]);
        let error = answer_of(&mut command).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.ends_with(": because")));
    }
}
