//! Debian's packages: whether they can be installed here, and installing them.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::process;

/// Packages that start a service of the same name by themselves, unless they are told not to.
const SERVICES: [&str; 3] = ["redis-server", "prometheus", "prometheus-redis-exporter"];

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
    let mut started = Vec::new();
    for service in SERVICES {
        if packages.iter().any(|package| package == service) && !keep_from_starting(service)? {
            started.push(service);
        }
    }
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
    for service in started {
        println!("  stopping the service that the package {service} started");
        process::answer_of(Command::new("service").args([service, "stop"]))
            .with_context(|| format!("the package {service} started a service: stop it"))?;
    }
    Ok(())
}

/// The demo and the tests start servers of their own, so those of the packages must not appear on the
/// developer's machine. A masked service is neither started by the package nor at the next boot.
/// Without systemd nothing can be said to the package; then this returns false.
fn keep_from_starting(service: &str) -> Result<bool> {
    if Path::new(SYSTEMD).exists() {
        println!(
            "  masking {service}.service, so that the package does not start it here \
             (to have it: systemctl unmask {service}.service)"
        );
        process::answer_of(Command::new("systemctl").args(["mask", &format!("{service}.service")]))
            .with_context(|| {
                format!("cannot keep the package {service} from starting a service")
            })?;
    } else if Path::new(SERVICE_POLICY).exists() {
        println!("  {SERVICE_POLICY} decides whether the package {service} starts a service here");
    } else {
        println!(
            "  the package {service} will start a service here; it is stopped again afterwards"
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
