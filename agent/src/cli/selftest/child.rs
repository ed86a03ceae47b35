//! A program that ends with this process, however this process ends: `evictscope tied`, which is not for users, so
//! `--help` does not list it, becomes the program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// How many of its last lines are worth quoting.
const LAST_LINES: usize = 10;

/// A running program, which is killed when this is dropped.
pub struct Tied {
    program: PathBuf,
    child: Child,
    log: PathBuf,
}

impl Tied {
    /// Starts `program` with `name` as its argument 0. Its output goes to a file in `directory`, which is also its
    /// working directory.
    ///
    /// Call it in the main thread: the kernel kills the program when the thread that started it ends.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let cannot = || format!("cannot start {}", program.display());
        let output = File::create(&log).with_context(cannot)?;
        let child = Command::new(std::env::current_exe()?)
            .args(["tied", &std::process::id().to_string(), name])
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A Ctrl-C on the terminal is for this process, which then ends its children.
            .process_group(0)
            .spawn()
            .with_context(cannot)?;
        Ok(Self { program: program.to_owned(), child, log })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended, with the last lines that it wrote.
    pub fn must_run(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = log.trim_end().lines().collect();
        let last = match &lines[lines.len().saturating_sub(LAST_LINES)..] {
            [] => "without a word".to_owned(),
            last => last.join("\n      "),
        };
        bail!("{} ended ({status}): {last}", self.program.display());
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        // It may have ended by itself, or never started.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Become another program, which the kernel kills when the parent ends
#[derive(clap::Args)]
pub struct TiedArguments {
    /// The parent's process id
    parent: i32,
    /// Its argument 0
    name: OsString,
    /// The program
    program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the program. The kernel keeps the tie across the exec.
pub fn become_tied(arguments: TiedArguments) -> anyhow::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent != Some(arguments.parent) {
        // It ended before this was tied to it.
        bail!("process {} has ended", arguments.parent);
    }
    let error = Command::new(&arguments.program).arg0(arguments.name).args(arguments.arguments).exec();
    Err(anyhow!("cannot execute {}: {error}", arguments.program.display()))
}
