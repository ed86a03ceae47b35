//! The user root, and commands that see other directories.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

pub fn must_be_root(what: &str) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root may {what}: run this as root");
    Ok(())
}

/// Shares this machine's /proc, /sys and /dev with `$1` until the command ends.
const ENTER: &str = r#"
set -e
for shared in proc sys dev; do mount --rbind "/$shared" "$1/$shared"; done
exec chroot "$@"
"#;

/// Returns a command that runs a shell script in a mount namespace of its own: nobody else sees what it mounts.
/// Arguments added to the command go to the script. A program that the script executes keeps the process id.
pub fn unseen(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).args(["sh", "-c", script, "sh"]);
    command
}

/// Returns a command that runs `program` with `root` as its `/`, in a process that keeps its id. The environment has a
/// `PATH` and nothing else, because the caller's variables are about another root.
pub fn enter(root: &Path, program: &str) -> Command {
    let mut command = unseen(ENTER);
    command.arg(root).arg(program).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}
