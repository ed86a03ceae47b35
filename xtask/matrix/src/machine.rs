//! A virtual machine: QEMU without KVM, whose serial console is all that comes out of it.
//!
//! The initial file system of a machine: programs of this machine with their libraries, a busybox, and
//! the scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::podman::libraries_of;
use evictscope_testkit::process;

use crate::answers::Answers;
use crate::files;

/// How many lines of a console tell why a machine failed.
const LAST_LINES: usize = 15;

/// A machine that ends by itself.
pub struct Machine<'a> {
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The initial file system.
    pub initramfs: &'a Path,
    /// What is added to the kernel's command line.
    pub command_line: &'a str,
    /// Its memory, in MiB.
    pub memory: u32,
    /// How long it may run.
    pub limit: Duration,
}

impl Machine<'_> {
    /// Runs the machine to its end, removes its file system, and returns its answers. `console` keeps all that it wrote.
    pub fn run(&self, console: &Path) -> Result<Answers> {
        // Time that others take from QEMU counts as CPU time of the programs in its machine, which then reach their limits. So
        // QEMU has priority over the steps that run beside it. `timeout` ends QEMU even if this program has ended.
        let mut command = Command::new("nice");
        command
            .args([
                "--adjustment=-10",
                "timeout",
                "--foreground",
                "--kill-after=5",
            ])
            .arg(self.limit.as_secs().to_string())
            .arg("qemu-system-x86_64")
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            // Two processors in turns: with a thread for each, one ran code that the other had just changed,
            // in a 7.2 kernel that was booting. This takes no longer, and leaves a core to others.
            .args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2"])
            .args(["-no-reboot"])
            .args(["-m", &self.memory.to_string(), "-kernel"])
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .arg("-append")
            // Without the first option, a kernel panics if the host is so busy that its timer does not tick during the check.
            .arg(format!(
                "no_timer_check console=ttyS0 quiet panic=-1 {}",
                self.command_line
            ))
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        let ended = process::answer_of(&mut command);
        fs::remove_file(self.initramfs).context("cannot remove the initial file system")?;
        let text = fs::read(console).context("QEMU has left no console")?;
        let text = String::from_utf8_lossy(&text);
        ended.with_context(|| format!("its last lines:\n{}", last_lines(&text)))?;
        let answers = Answers::read(&text).with_context(|| format!("see {}", console.display()))?;
        ensure!(
            !answers.is_empty(),
            "the machine ended before it answered anything; its last lines:\n{}",
            last_lines(&text)
        );
        Ok(answers)
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

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
