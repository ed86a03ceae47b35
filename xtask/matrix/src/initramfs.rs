//! The initial file system of a machine: programs of this machine with their libraries, a busybox, and
//! the scripts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::files;
use evictscope_testkit::{libraries::libraries_of, process};

/// The script with which both kinds of machine answer.
const ANSWERS: &str = include_str!("answers.sh");

/// Writes every file below the working directory, as root's, to the archive `$1`.
const PACK: &str = r#"find . | cpio --create --format=newc --owner=0:0 --quiet >"$1""#;

/// An initial file system that is being put together.
pub struct Initramfs(PathBuf);

impl Initramfs {
    /// Begins one in a directory, with a busybox, the first process (a script), and `answers.sh`.
    pub fn begin(directory: PathBuf, busybox: &Path, init: &str) -> Result<Self> {
        files::make_empty(&directory)?;
        let begun = Self(directory);
        begun.add(busybox, "bin/busybox")?;
        begun.write("init", init)?;
        begun.write("answers.sh", ANSWERS)?;
        fs::set_permissions(begun.0.join("init"), fs::Permissions::from_mode(0o755))?;
        Ok(begun)
    }

    /// Writes a file.
    pub fn write(&self, to: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(to), text).with_context(|| format!("cannot write {to}"))
    }

    /// Adds a file.
    pub fn add(&self, file: &Path, to: &str) -> Result<()> {
        let to = self.0.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    /// Adds a program to `usr/bin`, and the libraries that it is linked with at their own paths.
    pub fn add_program(&self, program: &Path, name: &str) -> Result<()> {
        self.add(program, &format!("usr/bin/{name}"))?;
        for library in libraries_of(program)? {
            let to = library.to_string_lossy();
            self.add(&library, to.trim_start_matches('/'))?;
        }
        Ok(())
    }

    /// Packs all of it into an archive that a kernel unpacks.
    pub fn pack(self) -> Result<PathBuf> {
        let archive = self.0.with_extension("cpio");
        process::answer_of(
            Command::new("sh")
                .current_dir(&self.0)
                .args(["-c", PACK, "sh"])
                .arg(&archive),
        )?;
        fs::remove_dir_all(self.0).context("cannot remove what was packed")?;
        Ok(archive)
    }
}
