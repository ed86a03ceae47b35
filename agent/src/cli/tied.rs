//! `evictscope tied` runs a program that ends with its parent, however the parent ends. It is for `selftest`, so
//! `--help` does not list it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{anyhow, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Become another program, which the kernel kills when the parent ends
#[derive(clap::Args)]
pub struct Arguments {
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
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent != Some(arguments.parent) {
        // It ended before this was tied to it.
        bail!("process {} has ended", arguments.parent);
    }
    let error = Command::new(&arguments.program).arg0(arguments.name).args(arguments.arguments).exec();
    let program = arguments.program.display();
    Err(anyhow!("cannot execute {program}: {error}"))
}
