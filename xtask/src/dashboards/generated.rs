//! The dashboards and rules as the Go program in `dashboards/src` generates them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;

use super::{folders, rules};
use crate::go::Go;

/// Regenerates the committed dashboards and rules.
pub fn write() -> Result<()> {
    generate(&generator(&Go::find()?)?, &folders::sources())?;
    for file in files(&folders::sources())? {
        println!("written        {}", file.display());
    }
    Ok(())
}

/// Checks that the committed dashboards and rules are as generated, and that the dashboards are in Grafana's schema and
/// pass its linter.
pub fn check() -> Result<()> {
    let go = Go::find()?;
    let generator = generator(&go)?;
    let committed = folders::dashboards(&folders::sources())?;
    must_be_fresh(&generator)?;
    process::succeed(Command::new(&generator).arg("validate").args(&committed))?;
    lint(&go, &committed)?;
    println!("{} dashboards are as generated, in Grafana's schema, and pass its linter", committed.len());
    Ok(())
}

fn generator(go: &Go) -> Result<PathBuf> {
    let program = folders::built()?.join("generate");
    go.build(&folders::sources().join("src"), ".", &program)?;
    Ok(program)
}

fn generate(generator: &Path, to: &Path) -> Result<()> {
    process::succeed(Command::new(generator).arg("generate").arg(to))
}

/// Returns the dashboards in a folder and the rules below it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = folders::dashboards(folder)?;
    files.extend(rules::files(&folder.join("rules"))?);
    Ok(files)
}

fn must_be_fresh(generator: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    generate(generator, scratch.path())?;
    let read = |folder: &Path| {
        let files = files(folder)?.into_iter();
        let named = files.map(|file| anyhow::Ok((file.strip_prefix(folder)?.to_owned(), folders::read(&file)?)));
        named.collect::<Result<Vec<_>>>()
    };
    ensure!(
        read(scratch.path())? == read(&folders::sources())?,
        "dashboards/*.json and dashboards/rules/*.yaml are not what dashboards/src generates: run \
         `cargo xtask dashboards` and commit, or delete a file that is no longer generated"
    );
    Ok(())
}

/// Runs Grafana's linter. The exceptions from its rules are in `dashboards/.lint`.
fn lint(go: &Go, dashboards: &[PathBuf]) -> Result<()> {
    let linter = folders::built()?.join("dashboard-linter");
    go.build(&folders::sources().join("linter"), "github.com/grafana/dashboard-linter", &linter)?;
    for dashboard in dashboards {
        let mut lint = Command::new(&linter);
        process::succeed(lint.args(["lint", "--strict"]).arg(dashboard))?;
    }
    Ok(())
}
