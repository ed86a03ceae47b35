//! The kernels of the matrix, and their packages.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::process;

use crate::files;

/// The unit, and its drop-in for kernels without uprobe_multi links.
const UNIT: &str = include_str!("../../../packaging/evictscope.service");
const DROP_IN: &str = include_str!("../../../packaging/older-kernels.conf");

pub struct Kernel {
    /// The suite whose current kernel it is.
    pub suite: &'static str,
    /// Whether it has uprobe_multi links (Linux 6.6).
    pub has_multi_links: bool,
}

/// The kernels on which the agent is tried.
pub const KERNELS: [Kernel; 3] = [
    Kernel { suite: "bookworm", has_multi_links: false },
    Kernel { suite: "trixie", has_multi_links: true },
    Kernel { suite: "unstable", has_multi_links: true },
];

impl Kernel {
    /// Returns the capabilities that the agent gets on this kernel: those of the unit, with the drop-in if the kernel
    /// needs it.
    pub fn capabilities(&self) -> Result<String> {
        let small = small_set()?;
        match self.has_multi_links {
            true => Ok(small),
            false => Ok(format!("{small},{}", ambient(DROP_IN)?)),
        }
    }
}

/// Returns the capabilities of the unit without the drop-in, named as `setpriv` names them.
pub fn small_set() -> Result<String> {
    ambient(UNIT)
}

fn ambient(unit: &str) -> Result<String> {
    let mut lines = unit.lines();
    let names = lines.find_map(|line| line.strip_prefix("AmbientCapabilities="));
    let names = names.context("a unit has no ambient capabilities")?;
    let names = names.split(' ').map(|name| name.trim_start_matches("CAP_"));
    Ok(names.collect::<Vec<_>>().join(",").to_lowercase())
}

/// Leaves the newest cloud kernel of a suite in `$DIRECTORY`, as `kernel`, and a `busybox` that needs no
/// library. mmdebstrap runs this with a private configuration of apt, which knows only that suite. Newer
/// kernels are in the package `linux-binary`, which the package `linux-image` depends on.
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

/// Returns the directory with the `kernel` and the `busybox` of a suite. Downloads them if they are
/// missing; remove the directory to get the suite's newest kernel.
pub fn provide(suite: &str) -> Result<PathBuf> {
    let directory = files::directory()?.join(suite);
    if directory.exists() {
        return Ok(directory);
    }
    let part = directory.with_extension("part");
    files::make_empty(&part)?;
    // Quiet, because the test command runs this beside other steps.
    process::answer_of(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=custom"])
            // The archive that a machine reaches may be a snapshot: signed, but out of date.
            .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
            .arg(format!("--extract-hook={DOWNLOAD}"))
            .args([suite, "/dev/null"])
            .env("DIRECTORY", &part),
    )
    .with_context(|| format!("cannot download the kernel of Debian {suite}"))?;
    fs::rename(&part, &directory).context("cannot keep the kernel")?;
    Ok(directory)
}
