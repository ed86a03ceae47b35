//! What clusters take: the chart for Helm, and the base for kustomize with its components and the dashboards.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};

use super::{commit::Commit, name, tar};

/// The directory of the chart, and the one above it.
const CHART: &str = "evictscope";
const ABOVE_CHART: &str = "packaging/helm";

/// Makes one tarball for Helm and one for kustomize, and returns their paths.
pub fn make(directory: &Path, commit: &Commit) -> Result<[PathBuf; 2]> {
    let version = env!("CARGO_PKG_VERSION");
    let chart = directory.join(format!("evictscope-chart-{version}.tgz"));
    let base = directory.join(format!("evictscope-kubernetes-{version}.tar.gz"));
    make_chart(&chart, commit)?;
    make_base(&base, commit)?;
    Ok([chart, base])
}

/// Packs the chart as `helm package` does, without what `.helmignore` names, and with the dashboards that a link leads to.
fn make_chart(tarball: &Path, commit: &Commit) -> Result<()> {
    let above = workspace::root().join(ABOVE_CHART);
    let ignored = fs::read_to_string(above.join(CHART).join(".helmignore"))
        .context("cannot read the chart's .helmignore")?;
    let paths = ignored
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut tar = gzipped(tarball, commit);
    tar.args(["--dereference", "--anchored"])
        .args(paths.map(|path| format!("--exclude={CHART}/{}", path.trim_end_matches('/'))))
        .arg("--directory")
        .args([&above, Path::new(CHART)]);
    process::succeed(&mut tar)
}

/// Packs the base, its components and the dashboards as they are in the repository, below `evictscope`.
fn make_base(tarball: &Path, commit: &Commit) -> Result<()> {
    let root = workspace::root();
    let mut tar = gzipped(tarball, commit);
    tar.arg("--transform=s,^,evictscope/,")
        .arg("--directory")
        .arg(root)
        .args(["packaging/kubernetes", "dashboards/kustomization.yaml"]);
    for dashboard in workspace::files_ending(&root.join("dashboards"), "json")? {
        tar.arg(format!("dashboards/{}", name(&dashboard)?));
    }
    process::succeed(&mut tar)
}

/// Returns a `tar` whose bytes do not depend on the permissions in a checkout either.
fn gzipped(tarball: &Path, commit: &Commit) -> Command {
    let mut tar = tar(commit);
    tar.args(["--mode=u=rwX,go=rX", "--gzip", "--create", "--file"])
        .arg(tarball);
    tar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tarball: &Path) -> Result<Vec<String>> {
        let listed =
            process::answer_of(Command::new("tar").args(["--list", "--file"]).arg(tarball));
        let mut files: Vec<String> = listed?.lines().map(str::to_owned).collect();
        files.retain(|file| !file.ends_with('/'));
        Ok(files)
    }

    #[test]
    fn the_tarballs_have_what_clusters_need_and_nothing_else() -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let [chart, base] = make(scratch.path(), &Commit::unnamed()?)?;
        let has = |files: &[String], wanted: &[&str]| {
            for file in wanted {
                assert!(files.iter().any(|found| found == file), "{file}: {files:?}");
            }
        };
        let chart = listed(&chart)?;
        has(
            &chart,
            &[
                "evictscope/Chart.yaml",
                "evictscope/templates/daemonset.yaml",
                "evictscope/files/fleet.json",
                "evictscope/files/rules/alerts.yaml",
            ],
        );
        for file in &chart {
            let own = ["Chart.yaml", "values", "templates/", ".helmignore"];
            let file = file.trim_start_matches("evictscope/");
            let dashboard = file.starts_with("files/") && file.ends_with(".json");
            let rules = file.starts_with("files/rules/") && !file.contains("tests");
            assert!(
                dashboard || rules || own.iter().any(|it| file.starts_with(it)),
                "{file}"
            );
        }
        has(
            &listed(&base)?,
            &[
                "evictscope/packaging/kubernetes/kustomization.yaml",
                "evictscope/packaging/kubernetes/components/older-kernels/kustomization.yaml",
                "evictscope/dashboards/kustomization.yaml",
                "evictscope/dashboards/fleet.json",
            ],
        );
        Ok(())
    }
}
