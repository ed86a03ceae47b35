//! Debian's packages: whether they can be installed here, and installing them.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::process;

/// The service that the package redis-server starts by itself, unless it is told not to.
const REDIS_SERVICE: &str = "redis-server.service";

/// Where there is a running systemd.
const SYSTEMD: &str = "/run/systemd/system";

/// What Debian's packages ask before they start a service.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

/// Whether packages can be installed here; if not, why.
pub fn installable() -> Result<()> {
    ensure!(
        which::which("apt-get").is_ok(),
        "there is no apt-get here (set-up knows Debian's packages only)"
    );
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root may install packages"
    );
    Ok(())
}

/// Whether apt's lists, as they are now, have a package of this name.
pub fn knows(package: &str) -> bool {
    process::answer_of(Command::new("apt-cache").args(["show", "--no-all-versions", package]))
        .is_ok_and(|answer| !answer.trim().is_empty())
}

/// The commands that install these packages, as one would type them.
pub fn install_commands(packages: &[String]) -> Vec<Command> {
    let mut update = Command::new("apt-get");
    update.arg("update");
    let mut install = Command::new("apt-get");
    install
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages);
    vec![update, install]
}

/// Installs packages: brings apt's lists up to date, asks nothing, adds nothing recommended.
pub fn install(packages: &[String]) -> Result<()> {
    let redis = packages.iter().any(|package| package == "redis-server");
    let stop_redis = redis && !keep_redis_from_starting()?;
    for mut command in install_commands(packages) {
        println!("  running: {}", process::display(&command));
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Another apt at work (unattended-upgrades, say) is waited for, but not for ever.
            .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]);
        let finished = process::run_with_progress("apt-get", &mut command)?;
        ensure!(
            finished.status.success(),
            "{}\n`{}` failed ({}); put right what it complains of and run this again",
            finished.output.trim_end(),
            process::display(&command),
            finished.status
        );
    }
    if stop_redis {
        println!("  stopping the server that the package redis-server started");
        process::answer_of(Command::new("service").args(["redis-server", "stop"]))
            .context("the package redis-server started a server: stop it")?;
    }
    Ok(())
}

/// The demo and the tests start servers of their own, so the one of the package must not appear on
/// the developer's machine. A masked service is neither started by the package nor at the next boot.
/// Without systemd nothing can be said to the package; then this returns false.
fn keep_redis_from_starting() -> Result<bool> {
    if Path::new(SYSTEMD).exists() {
        println!(
            "  masking {REDIS_SERVICE}, so that the package does not start a server here \
             (to have one: systemctl unmask {REDIS_SERVICE})"
        );
        process::answer_of(Command::new("systemctl").args(["mask", REDIS_SERVICE]))
            .context("cannot keep the package redis-server from starting a server")?;
    } else if Path::new(SERVICE_POLICY).exists() {
        println!(
            "  {SERVICE_POLICY} decides whether the package redis-server starts a server here"
        );
    } else {
        println!(
            "  the package redis-server will start a server here; it is stopped again afterwards"
        );
        return Ok(false);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_to_type_ask_nothing_and_name_every_package() {
        let commands = install_commands(&["one".to_owned(), "two".to_owned()]);
        let typed: Vec<_> = commands.iter().map(process::display).collect();
        assert_eq!(
            typed,
            [
                "apt-get update",
                "apt-get install --yes --no-install-recommends one two"
            ]
        );
    }
}
