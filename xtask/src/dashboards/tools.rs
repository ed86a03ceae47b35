//! What checking the dashboards and the rules needs on the machine.

use anyhow::Result;

use crate::debian;

/// Programs, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 3] = [
    ("promtool", "prometheus"),
    ("prometheus", "prometheus"),
    ("go", "golang-go"),
];

/// Installs what is not there, where it may. Without it only the checks of the dashboards and rules
/// cannot be made, and say so.
pub fn provide() -> Result<()> {
    let mut packages: Vec<_> = absent().map(|(_, package)| package.to_owned()).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    match debian::installable() {
        Ok(()) => debian::install(&packages),
        Err(reason) => {
            println!(
                "  the dashboards and rules cannot be checked without {}: {reason:#}",
                packages.join(" and ")
            );
            Ok(())
        }
    }
}

/// Why they cannot be checked here, if they cannot.
pub fn missing() -> Option<String> {
    let (program, package) = absent().next()?;
    Some(format!(
        "there is no {program} on PATH: on Debian, the package {package} brings it"
    ))
}

fn absent() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROGRAMS
        .into_iter()
        .filter(|(program, _)| which::which(program).is_err())
}
