//! A virtual machine: QEMU without KVM, because a machine that is itself virtual may have none. So times measured in it
//! mean nothing. Its initial file system has programs of this machine with their libraries, a busybox, and scripts; its
//! serial console is all that comes out of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::target::Target;
use evictscope_testkit::{libraries, process};

/// How many lines of a console tell why a machine failed.
const LAST_LINES: usize = 15;

/// How long a machine may run: usually less than a minute, but in the test command, other steps run beside it.
const LIMIT: &str = "3600";

/// Writes every file below the working directory, as root's, to the archive `$1`.
const PACK: &str = r#"find . | cpio --create --format=newc --owner=0:0 --quiet >"$1""#;

/// A machine whose initial file system is being put together.
pub struct Machine {
    root: PathBuf,
    kernel: PathBuf,
    target: Target,
}

impl Machine {
    /// Begins one with the kernel and the busybox in `packages`, the first process (a script), and `answers.sh`: of
    /// this machine's processor, or of another one.
    pub fn begin(name: &str, packages: &Path, init: &str, target: Target) -> Result<Self> {
        let find = |path: &str| libraries::find(packages, path);
        let root = crate::directory()?.join(format!("{name}.root"));
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
        }
        let machine = Self { root, kernel: find("*/vmlinuz*")?, target };
        machine.add(&find("*bin/busybox")?, "bin/busybox")?;
        machine.write("init", init)?;
        machine.write("answers.sh", include_str!("answers.sh"))?;
        fs::set_permissions(machine.root.join("init"), fs::Permissions::from_mode(0o755))?;
        Ok(machine)
    }

    pub fn write(&self, to: &str, text: &str) -> Result<()> {
        fs::write(self.root.join(to), text).with_context(|| format!("cannot write {to}"))
    }

    pub fn add(&self, file: &Path, to: &str) -> Result<()> {
        let to = self.root.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    /// Adds a program to `usr/bin`, and the libraries that it is linked with at their own paths.
    pub fn add_program(&self, program: &Path, name: &str) -> Result<()> {
        self.add(program, &format!("usr/bin/{name}"))?;
        for library in libraries::of_this_machine(program)? {
            self.add(&library, library.to_string_lossy().trim_start_matches('/'))?;
        }
        Ok(())
    }

    /// Adds a program of another processor, and the libraries that it is linked with, from a root directory of that.
    pub fn add_program_of(&self, root: &Path, program: &Path, name: &str) -> Result<()> {
        self.add(program, &format!("usr/bin/{name}"))?;
        libraries::in_root(root, program)?.iter().try_for_each(|library| {
            self.add(library, &format!("lib/{}", library.file_name().unwrap_or_default().display()))
        })
    }

    /// Runs it to its end, and returns its answers. A file beside its root keeps all that it wrote.
    pub fn run(self, command_line: &str, mebibytes: u32) -> Result<Answers> {
        let [archive, console] = ["cpio", "console"].map(|kind| self.root.with_extension(kind));
        process::answer_of(Command::new("sh").current_dir(&self.root).args(["-c", PACK, "sh"]).arg(&archive))?;
        // Time that others take from QEMU counts as CPU time of the programs in its machine, which then reach their
        // limits. So QEMU has priority over the steps that run beside it. `timeout` ends QEMU even if this program has
        // ended.
        let mut command = Command::new("nice");
        command
            .args(["--adjustment=-10", "timeout", "--foreground", "--kill-after=5", LIMIT])
            .args(match self.target {
                Target::X86_64 => &["qemu-system-x86_64", "-cpu", "max"][..],
                // Signing return addresses as real processors do would take most of the time.
                Target::Aarch64 => &["qemu-system-aarch64", "-machine", "virt", "-cpu", "max,pauth-impdef=on"],
            })
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            // Two processors in turns: with a thread for each, one ran code that the other had just changed,
            // in a 7.2 kernel that was booting. This takes no longer, and leaves a core to others.
            .args(["-accel", "tcg,thread=single", "-smp", "2"])
            .args(["-no-reboot", "-m", &mebibytes.to_string(), "-kernel"])
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&archive)
            .arg("-append")
            // Without the first option, a kernel panics if the host is so busy that its timer does not tick during the
            // check.
            .arg(match self.target {
                Target::X86_64 => format!("no_timer_check console=ttyS0 quiet panic=-1 {command_line}"),
                Target::Aarch64 => format!("console=ttyAMA0 quiet panic=-1 {command_line}"),
            })
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        let ended = process::answer_of(&mut command);
        fs::remove_file(archive).context("cannot remove the initial file system")?;
        fs::remove_dir_all(self.root).context("cannot remove what was packed")?;
        let text = fs::read(&console).context("QEMU has left no console")?;
        let text = String::from_utf8_lossy(&text);
        let mut last: Vec<_> = text.lines().rev().take(LAST_LINES).collect();
        last.reverse();
        let context = || format!("see {}, whose last lines are:\n{}", console.display(), last.join("\n"));
        ended.with_context(context)?;
        Answers::read(&text).with_context(context)
    }
}

pub struct Answers(BTreeMap<String, Answer>);

pub struct Answer {
    pub text: String,
    pub success: bool,
}

impl Answers {
    /// Reads a console. Lines between two answers are the kernel's or the boot loader's.
    fn read(console: &str) -> Result<Self> {
        let console = format!("\n{}", console.replace('\r', ""));
        let mut answers = BTreeMap::new();
        for pair in console.split("\n@@ ended ").collect::<Vec<_>>().windows(2) {
            // Before the end of an answer are its name and its text; behind it is its exit code.
            let (_, answer) = pair[0].rsplit_once("\n@@ ").context("an answer has no beginning")?;
            let (name, text) = answer.split_once('\n').unwrap_or((answer, ""));
            ensure!(!name.starts_with("never_true"), "in the machine, {name}:\n{text}");
            let success = pair[1].lines().next() == Some("0");
            answers.insert(name.to_owned(), Answer { text: text.to_owned(), success });
        }
        ensure!(!answers.is_empty(), "the machine ended before it answered anything");
        Ok(Self(answers))
    }

    pub fn get(&self, name: &str) -> Result<&Answer> {
        self.0.get(name).with_context(|| format!("the machine did not answer `{name}`"))
    }

    pub fn text(&self, name: &str) -> Result<&str> {
        Ok(self.get(name)?.text.trim())
    }

    /// Returns an answer that is one word, such as a number.
    pub fn word<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.text(name)?;
        text.parse().ok().with_context(|| format!("the machine answered `{name}` with `{text}`"))
    }

    /// Returns what a line `KEY=VALUE`, `KEY:VALUE` or `KEY:\tVALUE` of an answer says.
    pub fn value(&self, name: &str, key: &str) -> Result<&str> {
        let mut lines = self.text(name)?.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(['=', ':']));
        Ok(value.with_context(|| format!("the machine's `{name}` has no `{key}`"))?.trim())
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
