//! `cargo xtask kubernetes`: checks the Helm chart in `packaging/helm`. And what `cargo xtask package` makes of it.
//!
//! A Go program (`packaging/check`) does it, with the code of Kubernetes, Helm and prometheus-operator. No cluster is
//! needed.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{debian, process, workspace};

use crate::go::Go;
use crate::package::{Commit, tar};

/// prometheus-operator, for its CustomResourceDefinitions.
const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

/// Its types, a separate module of the same version, which `packaging/check/go.mod` names.
const OPERATOR_TYPES: &str = "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring";

/// The variable in which the program gets the directory of that module.
const OPERATOR_VARIABLE: &str = "PROMETHEUS_OPERATOR";

pub fn run() -> Result<()> {
    debian::require(&[&debian::GO])?;
    println!("{}", check()?);
    Ok(())
}

/// Checks the chart, and that the check itself refuses what it must. Returns what the check says.
pub fn check() -> Result<String> {
    let go = Go::find()?;
    let program = program(&go)?;
    let version = go.version_of(OPERATOR_TYPES, &sources())?;
    let operator = go.module(&format!("{OPERATOR}@{version}"))?;
    process::succeed(go.test(&sources()).env(OPERATOR_VARIABLE, &operator))?;
    let mut check = Command::new(program);
    check.env(OPERATOR_VARIABLE, operator).arg("check").arg(workspace::root()).arg(env!("CARGO_PKG_VERSION"));
    Ok(process::answer_of(&mut check)?.trim_end().to_owned())
}

fn program(go: &Go) -> Result<PathBuf> {
    let directory = workspace::target_folder("kubernetes")?;
    // Two tasks of `cargo xtask test --all` need it: the second must neither build it too nor overwrite it.
    let lock = File::create(directory.join("lock")).context("cannot make a lock")?;
    lock.lock().context("cannot wait for the lock")?;
    let program = directory.join("check");
    go.build(&sources(), ".", &program).context("cannot build the program that checks the chart")?;
    Ok(program)
}

fn sources() -> PathBuf {
    workspace::root().join("packaging/check")
}

/// The directory of the chart, and the one above it.
const CHART: &str = "evictscope";
const ABOVE_CHART: &str = "packaging/helm";

/// Makes what clusters take, the chart's tarball and a file of plain manifests, and returns their paths.
pub fn make(directory: &Path, commit: &Commit) -> Result<[PathBuf; 2]> {
    let version = env!("CARGO_PKG_VERSION");
    let chart = directory.join(format!("evictscope-chart-{version}.tgz"));
    make_chart(&chart, commit)?;
    let plain = directory.join(format!("evictscope-kubernetes-{version}.yaml"));
    let manifests = process::answer_of(Command::new(program(&Go::find()?)?).arg("render").arg(workspace::root()))?;
    fs::write(&plain, manifests).context("cannot write the manifests")?;
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
    use super::*;

    #[test]
    fn the_chart_has_what_clusters_need_and_nothing_else() -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let tarball = scratch.path().join("chart.tgz");
        make_chart(&tarball, &Commit::unnamed()?)?;
        let listed = process::answer_of(Command::new("tar").args(["--list", "--file"]).arg(&tarball))?;
        let files: Vec<&str> = listed.lines().filter(|file| !file.ends_with('/')).collect();
        for wanted in [
            "evictscope/Chart.yaml",
            "evictscope/templates/daemonset.yaml",
            "evictscope/files/fleet.json",
            "evictscope/files/rules/alerts.yaml",
        ] {
            assert!(files.contains(&wanted), "{wanted}: {files:?}");
        }
        for file in files {
            let own = ["Chart.yaml", "values", "templates/", ".helmignore"];
            let file = file.trim_start_matches("evictscope/");
            let dashboard = file.starts_with("files/") && file.ends_with(".json");
            let rules = file.starts_with("files/rules/") && !file.contains("tests");
            assert!(dashboard || rules || own.iter().any(|it| file.starts_with(it)), "{file}");
        }
        Ok(())
    }
}
