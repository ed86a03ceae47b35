//! A virtual machine: QEMU without KVM, whose serial console is all that comes out of it.
//!
//! The initial file system of a machine: programs of this machine with their libraries, a busybox, and
//! the scripts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::podman::libraries_of;
use evictscope_testkit::process;

use crate::files;

/// How many lines of a console tell why a machine failed.
const LAST_LINES: usize = 15;

/// How long a machine may run: usually less than a minute, but in the test command, other steps run beside it.
const LIMIT: &str = "3600";

/// Runs a machine with the kernel in `packages` to its end, and returns its answers. `console` keeps all that it wrote.
pub fn run(
    packages: &Path,
    initramfs: Initramfs,
    command_line: &str,
    mebibytes: u32,
    console: &Path,
) -> Result<Answers> {
    let initramfs = initramfs.pack()?;
    // Time that others take from QEMU counts as CPU time of the programs in its machine, which then reach their limits.
    // So QEMU has priority over the steps that run beside it. `timeout` ends QEMU even if this program has ended.
    let mut command = Command::new("nice");
    command
        .args(["--adjustment=-10", "timeout", "--foreground", "--kill-after=5", LIMIT])
        .arg("qemu-system-x86_64")
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        // Two processors in turns: with a thread for each, one ran code that the other had just changed,
        // in a 7.2 kernel that was booting. This takes no longer, and leaves a core to others.
        .args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2"])
        .args(["-no-reboot", "-m", &mebibytes.to_string(), "-kernel"])
        .arg(packages.join("kernel"))
        .arg("-initrd")
        .arg(&initramfs)
        .arg("-append")
        // Without the first option, a kernel panics if the host is so busy that its timer does not tick during the
        // check.
        .arg(format!("no_timer_check console=ttyS0 quiet panic=-1 {command_line}"))
        .arg("-serial")
        .arg(format!("file:{}", console.display()));
    let ended = process::answer_of(&mut command);
    fs::remove_file(initramfs).context("cannot remove the initial file system")?;
    let text = fs::read(console).context("QEMU has left no console")?;
    let text = String::from_utf8_lossy(&text);
    ended.with_context(|| format!("its last lines:\n{}", last_lines(&text)))?;
    let answers = Answers::read(&text).with_context(|| format!("see {}", console.display()))?;
    ensure!(
        !answers.0.is_empty(),
        "the machine ended before it answered anything; its last lines:\n{}",
        last_lines(&text)
    );
    Ok(answers)
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
    /// Begins one in a directory, with the busybox in `packages`, the first process (a script), and `answers.sh`.
    pub fn begin(directory: PathBuf, packages: &Path, init: &str) -> Result<Self> {
        files::make_empty(&directory)?;
        let begun = Self(directory);
        begun.add(&packages.join("busybox"), "bin/busybox")?;
        begun.write("init", init)?;
        begun.write("answers.sh", ANSWERS)?;
        fs::set_permissions(begun.0.join("init"), fs::Permissions::from_mode(0o755))?;
        Ok(begun)
    }

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
    fn pack(self) -> Result<PathBuf> {
        let archive = self.0.with_extension("cpio");
        process::answer_of(Command::new("sh").current_dir(&self.0).args(["-c", PACK, "sh"]).arg(&archive))?;
        fs::remove_dir_all(self.0).context("cannot remove what was packed")?;
        Ok(archive)
    }
}

const MARK: &str = "@@ ";

/// The answers of one machine, by name.
pub struct Answers(BTreeMap<String, Answer>);

/// What one command in the machine wrote, and how it ended.
pub struct Answer {
    /// Its output.
    pub text: String,
    /// Whether its exit code was 0.
    pub success: bool,
}

impl Answers {
    /// Reads a console. Lines between two answers are the kernel's or the boot loader's.
    fn read(console: &str) -> Result<Self> {
        let mut answers = BTreeMap::new();
        let mut open: Option<(&str, String)> = None;
        for line in console.lines().map(|line| line.trim_end_matches('\r')) {
            match (line.strip_prefix(MARK), &mut open) {
                (Some(mark), Some((name, text))) => {
                    if let Some(code) = mark.strip_prefix("ended ") {
                        let answer = Answer { text: std::mem::take(text), success: code == "0" };
                        answers.insert((*name).to_owned(), answer);
                        open = None;
                    }
                }
                (Some(name), None) => open = Some((name, String::new())),
                (None, Some((_, text))) => {
                    text.push_str(line);
                    text.push('\n');
                }
                (None, None) => {}
            }
        }
        let mut in_vain = answers.iter().filter(|(name, _)| name.starts_with("never_true"));
        if let Some((name, answer)) = in_vain.next() {
            bail!("in the machine, {name}:\n{}", answer.text);
        }
        Ok(Self(answers))
    }

    pub fn get(&self, name: &str) -> Result<&Answer> {
        let answer = self.0.get(name);
        answer.with_context(|| format!("the machine did not answer `{name}`"))
    }

    /// Returns the text of an answer, without white space around it.
    pub fn text(&self, name: &str) -> Result<&str> {
        Ok(self.get(name)?.text.trim())
    }

    /// Returns an answer that is one word, such as a number.
    pub fn word<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.text(name)?;
        let word = text.parse().ok();
        word.with_context(|| format!("the machine answered `{name}` with `{text}`"))
    }

    /// Returns what a line `KEY=VALUE`, `KEY:VALUE` or `KEY:\tVALUE` of an answer says.
    pub fn value(&self, name: &str, key: &str) -> Result<&str> {
        let mut lines = self.text(name)?.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(['=', ':']));
        let value = value.with_context(|| format!("the machine's `{name}` has no `{key}`"))?;
        Ok(value.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_vain_is_an_error() {
        let console = "@@ never_true: redis-cli ping\nwhy\n@@ ended 0\n";
        let error = Answers::read(console).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("redis-cli ping:\nwhy")));
    }
}
