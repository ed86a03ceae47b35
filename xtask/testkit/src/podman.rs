//! podman with a store of its own, so that other containers of this machine are left alone.

use std::process::Command;

use anyhow::Result;

use crate::workspace;

/// Options in place of podman's own limits. Those need CAP_SYS_RESOURCE, which not every machine grants; and if version
/// 2 of control groups is mounted beside version 1, it has no controller for the number of processes.
pub const LIMITS: [&str; 3] = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", "--pids-limit=-1"];

/// Returns podman with a store of its own below `target/podman`.
pub fn command() -> Result<Command> {
    let directory = workspace::target_directory()?.join("podman");
    let mut podman = Command::new("podman");
    for (option, below) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
        podman.arg(option).arg(directory.join(below));
    }
    // So that nothing stays mounted when the last container is gone.
    podman.args(["--storage-driver=overlay", "--storage-opt=overlay.skip_mount_home=true"]);
    podman.args(["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none"]);
    Ok(podman)
}
