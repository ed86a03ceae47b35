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

/// Installs what is not there of these programs (each with the package that brings it), where it may.
/// Where it may not, only what needs them cannot be done, and this says so.
pub fn provide(programs: &[(&str, &str)], what_needs_them: &str) -> Result<()> {
    let mut packages: Vec<_> = absent(programs)
        .map(|(_, package)| package.to_owned())
        .collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    match installable() {
        Ok(()) => install(&packages),
        Err(reason) => {
            println!(
                "  {what_needs_them} needs {}: {reason:#}",
                packages.join(" and ")
            );
            Ok(())
        }
    }
}

/// Which of these programs is not there, if one is not.
pub fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = absent(programs).next()?;
    Some(format!(
        "there is no {program} on PATH: on Debian, the package {package} brings it"
    ))
}

fn absent<'a>(programs: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let there = |program: &str| which::which(program).is_ok();
    programs
        .iter()
        .copied()
        .filter(move |(program, _)| !there(program))
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
