//! The kernels of the matrix, and their packages.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::files;
use evictscope_testkit::process;

/// The capabilities of the packaged unit. `perf_event_open` of a uprobe takes `CAP_SYS_ADMIN` on the
/// kernels that Debian ships today, old and new.
const WITH_SYS_ADMIN: &[&str] = &["sys_admin", "sys_ptrace", "dac_read_search"];

/// A kernel of Debian's, and what the agent may do on it.
pub struct Kernel {
    /// The suite whose current kernel it is.
    pub suite: &'static str,
    /// The capabilities that the agent is given, named as `setpriv` names them.
    pub capabilities: &'static [&'static str],
}

/// The kernels on which the agent is tried.
pub const KERNELS: [Kernel; 3] = [
    Kernel {
        suite: "bookworm",
        capabilities: WITH_SYS_ADMIN,
    },
    Kernel {
        suite: "trixie",
        capabilities: WITH_SYS_ADMIN,
    },
    Kernel {
        suite: "unstable",
        capabilities: WITH_SYS_ADMIN,
    },
];

/// Leaves the newest cloud kernel of a suite in `$DIRECTORY`, as `kernel`, and a `busybox` that needs no
/// library. mmdebstrap runs this with a private configuration of apt, which knows that suite alone.
/// Newer kernels are in the package `linux-binary`, which the package `linux-image` depends on.
const DOWNLOAD: &str = r#"
set -e
cd "$DIRECTORY"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances linux-image-cloud-amd64 | grep -E '^linux-(image|binary)-[0-9]')
apt-get download $packages busybox-static
for package in *.deb; do dpkg-deb --extract "$package" unpacked; done
find unpacked -name 'vmlinuz*' -exec mv {} kernel \;
find unpacked -path '*bin/busybox' -exec mv {} busybox \;
rm -r *.deb unpacked
"#;

/// Returns the directory with the `kernel` and the `busybox` of a suite. They are downloaded where
/// they are not there yet; removing the directory asks for the suite's newest kernel.
pub fn provide(suite: &str) -> Result<PathBuf> {
    let directory = files::directory()?.join(suite);
    if directory.exists() {
        return Ok(directory);
    }
    let part = directory.with_extension("part");
    files::make_empty(&part)?;
    process::succeed(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=custom"])
            // The archive that a machine reaches may be a snapshot: signed, but out of date.
            .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
            .arg(format!("--extract-hook={DOWNLOAD}"))
            .args([suite, "/dev/null"])
            .env("DIRECTORY", &part),
    )?;
    fs::rename(&part, &directory).context("cannot keep the kernel")?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kernel_gives_the_agent_what_the_packaged_unit_gives_it() -> Result<()> {
        let unit = fs::read_to_string(
            evictscope_testkit::workspace::root().join("packaging/evictscope.service"),
        )?;
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("AmbientCapabilities="));
        let names = line.context("the unit has no such line")?;
        let names: Vec<_> = names
            .split(' ')
            .map(|name| name.trim_start_matches("CAP_").to_lowercase())
            .collect();
        assert!(KERNELS.iter().any(|kernel| kernel.capabilities == names));
        Ok(())
    }
}
