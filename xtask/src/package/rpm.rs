//! The .rpm: the files of the .deb, as `packaging/rpm/evictscope.spec` says.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};

use super::commit::Commit;

const SPEC: &str = "packaging/rpm/evictscope.spec";

/// Makes the .rpm from the unpacked .deb.
pub fn make(directory: &Path, files: &Path, commit: &Commit, work: &Path) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("evictscope-{version}-1.x86_64.rpm");
    let rpm = directory.join(&name);
    let mut build = commit.reproducibly("rpmbuild");
    build.args(["-bb", "--quiet", "--target", "x86_64"]);
    for (macro_name, value) in [
        ("agent_version", Path::new(version)),
        ("packed_files", files),
        ("_topdir", &work.join("rpmbuild")),
        ("_rpmdir", directory),
        ("_rpmfilename", Path::new(&name)),
    ] {
        build.arg("--define");
        build.arg(format!("{macro_name} {}", value.display()));
    }
    process::answer_of(build.arg(workspace::root().join(SPEC))).context("rpmbuild failed")?;
    Ok(rpm)
}
