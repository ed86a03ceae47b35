//! `cargo xtask kubernetes`: checks the Helm chart in `packaging/helm`.
//!
//! A Go program (`packaging/check`) does it, with the code of Kubernetes, Helm and prometheus-operator. No cluster is
//! needed.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{debian, process, workspace};

use crate::go::Go;

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

/// Returns the plain manifests that Helm makes of the chart.
pub fn rendered() -> Result<String> {
    process::answer_of(Command::new(program(&Go::find()?)?).arg("render").arg(workspace::root()))
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
