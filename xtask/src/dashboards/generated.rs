//! The dashboards and rules as the Go program in `dashboards/src` generates them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};

use super::{read, rules, sources};
use crate::go::Go;

pub fn write() -> Result<()> {
    generate(&built(&Go::find()?)?, &sources())?;
    for file in files(&sources())? {
        println!("written        {}", file.display());
    }
    Ok(())
}

/// Checks that the committed dashboards and rules are as generated, and that the dashboards are in Grafana's schema and
/// pass its linter. The exceptions from its rules are in `dashboards/.lint`.
pub fn check() -> Result<()> {
    let go = Go::find()?;
    let generator = built(&go)?;
    must_be_fresh(&generator)?;
    let committed = super::dashboards(&sources())?;
    process::succeed(Command::new(&generator).arg("validate").args(&committed))?;
    let linter = folder()?.join("dashboard-linter");
    go.build(&sources().join("linter"), "github.com/grafana/dashboard-linter", &linter)?;
    for dashboard in &committed {
        process::succeed(Command::new(&linter).args(["lint", "--strict"]).arg(dashboard))?;
    }
    println!("{} dashboards are as generated, in Grafana's schema, and pass its linter", committed.len());
    Ok(())
}

fn folder() -> Result<PathBuf> {
    let folder = workspace::target_directory()?.join("dashboards");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn built(go: &Go) -> Result<PathBuf> {
    let program = folder()?.join("generate");
    go.build(&sources().join("src"), ".", &program)?;
    Ok(program)
}

fn generate(generator: &Path, to: &Path) -> Result<()> {
    process::succeed(Command::new(generator).arg("generate").arg(to))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok([super::dashboards(folder)?, rules::files(&folder.join("rules"))?].concat())
}

fn must_be_fresh(generator: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    generate(generator, scratch.path())?;
    let all = |folder: &Path| {
        let named = files(folder)?.into_iter();
        named.map(|file| Ok((file.strip_prefix(folder)?.to_owned(), read(&file)?))).collect::<Result<Vec<_>>>()
    };
    ensure!(
        all(scratch.path())? == all(&sources())?,
        "dashboards/*.json and dashboards/rules/*.yaml are not what dashboards/src generates: run \
         `cargo xtask dashboards` and commit, or delete a file that is no longer generated"
    );
    Ok(())
}
