//! What Kubernetes takes: the tarball of the Helm chart, and a file of plain manifests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};

use super::commit::{Commit, tar};
use crate::kubernetes;

/// The directory of the chart, and the one above it.
const CHART: &str = "evictscope";
const ABOVE_CHART: &str = "packaging/helm";

pub fn make(directory: &Path, commit: &Commit) -> Result<[PathBuf; 2]> {
    let version = env!("CARGO_PKG_VERSION");
    let chart = directory.join(format!("evictscope-chart-{version}.tgz"));
    make_chart(&chart, commit)?;
    let plain = directory.join(format!("evictscope-kubernetes-{version}.yaml"));
    fs::write(&plain, kubernetes::rendered()?).context("cannot write the manifests")?;
    Ok([chart, plain])
}

/// Packs the chart as `helm package` does, without what `.helmignore` names, and with the dashboards that a link leads
/// to. Its bytes do not depend on the permissions in a checkout either.
fn make_chart(tarball: &Path, commit: &Commit) -> Result<()> {
    let above = workspace::root().join(ABOVE_CHART);
    let ignored =
        fs::read_to_string(above.join(CHART).join(".helmignore")).context("cannot read the chart's .helmignore")?;
    let paths = ignored.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    process::succeed(
        tar(commit)
            .args(["--mode=u=rwX,go=rX", "--gzip", "--create", "--file"])
            .arg(tarball)
            .args(["--dereference", "--anchored"])
            .args(paths.map(|path| format!("--exclude={CHART}/{}", path.trim_end_matches('/'))))
            .arg("--directory")
            .args([&above, Path::new(CHART)]),
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use regex::Regex;

    use super::*;

    #[test]
    fn the_chart_has_what_clusters_need_and_nothing_else() -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let tarball = scratch.path().join("chart.tgz");
        make_chart(&tarball, &Commit::unnamed()?)?;
        let listed = process::answer_of(Command::new("tar").args(["--list", "--file"]).arg(&tarball))?;
        let files: Vec<&str> = listed.lines().filter(|file| !file.ends_with('/')).collect();
        for wanted in ["Chart.yaml", "templates/daemonset.yaml", "files/fleet.json", "files/rules/alerts.yaml"] {
            assert!(files.contains(&format!("evictscope/{wanted}").as_str()), "{wanted}: {files:?}");
        }
        let own = Regex::new(
            r"^evictscope/(Chart\.yaml|values|templates/|\.helmignore|files/\w[\w-]*\.json$|files/rules/\w+\.yaml$)",
        )?;
        for file in files {
            assert!(own.is_match(file), "{file}");
        }
        Ok(())
    }
}
