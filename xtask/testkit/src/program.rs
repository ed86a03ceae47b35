//! Executable files that tests make, and then run.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::process;

/// Copies a file to `to`, and makes it executable.
///
/// Another process does it. If this one had the copy open for writing while another of its threads started a program,
/// the child process would have it open too until it executes that program, and the copy could not be executed
/// meanwhile (ETXTBSY).
///
/// # Errors
///
/// Fails with what `install` says.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut install = Command::new("install");
    process::answer_of(install.args(["--mode", "755", "--no-target-directory"]).arg(from).arg(to))?;
    Ok(())
}
