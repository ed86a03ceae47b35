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
    debian::provide(&PROGRAMS, "checking the dashboards and rules")
}

/// Why they cannot be checked here, if they cannot.
pub fn missing() -> Option<String> {
    debian::missing(&PROGRAMS)
}
