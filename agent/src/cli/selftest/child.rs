//! A program that ends with this process, however this process ends.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

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
        let program = program.to_owned();
        Ok(Self { program, child, log })
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended, with the last lines that it wrote.
    pub fn must_run(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
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
