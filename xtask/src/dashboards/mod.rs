//! `cargo xtask dashboards`: generate the Grafana dashboards, and check them and the Prometheus rules.
//!
//! The dashboards are made by a Go program (`dashboards/src`) with Grafana's Foundation SDK, and are
//! committed; [`check`] refuses what is stale, not in Grafana's schema, or against the rules of
//! Grafana's linter. [`proof`] asks a real Prometheus all that they ask.

mod answers;
mod calm;
mod drawing;
mod expected;
mod go;
mod monitor;
mod proof;
mod queries;
mod recording;
mod rules;
mod tools;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};

use self::go::Go;
pub use self::{
    proof::{Subject, run as prove},
    tools::{missing, provide},
};
use crate::{process, workspace};

/// What to do in place of that.
#[derive(clap::Args)]
pub struct Arguments {
    /// Instead, run every query and rule in a real Prometheus, beside two bursts of the lab (needs root
    /// and a release build)
    #[arg(long)]
    live: bool,
    /// Instead, draw the dashboards into docs/images, from the answers that Prometheus gave in the last
    /// run of --live
    #[arg(long, conflicts_with = "live")]
    draw: bool,
}

/// Generates the dashboards anew, and checks them and the rules; or proves them.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.draw {
        return drawing::run();
    }
    provide()?;
    if let Some(reason) = missing() {
        bail!(reason);
    }
    if arguments.live {
        return prove(Subject::built()?);
    }
    let generator = Generator::build(&Go::find()?)?;
    generator.generate(&directory())?;
    for dashboard in files(&directory())? {
        println!("written        {}", dashboard.display());
    }
    check()
}

/// Checks the dashboards and the rules, as they are, without any server.
pub fn check() -> Result<()> {
    let go = Go::find()?;
    let generator = Generator::build(&go)?;
    let committed = files(&directory())?;
    must_be_fresh(&generator, &committed)?;
    generator.validate(&committed)?;
    lint(&go, &committed)?;
    println!(
        "{} dashboards are as generated, in Grafana's schema, and pass its linter",
        committed.len()
    );
    rules::check(&directory().join("rules"))
}

/// Where dashboards and rules are.
fn directory() -> PathBuf {
    workspace::root().join("dashboards")
}

/// The dashboards in a directory, by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    workspace::files_ending(directory, "json")
}

/// The program in `dashboards/src`.
struct Generator(PathBuf);

impl Generator {
    fn build(go: &Go) -> Result<Self> {
        let program = build_directory()?.join("generate");
        go.build(&directory().join("src"), ".", &program)?;
        Ok(Self(program))
    }

    fn generate(&self, to: &Path) -> Result<()> {
        process::succeed(std::process::Command::new(&self.0).arg("generate").arg(to))
    }

    fn validate(&self, dashboards: &[PathBuf]) -> Result<()> {
        process::succeed(
            std::process::Command::new(&self.0)
                .arg("validate")
                .args(dashboards),
        )
    }
}

fn build_directory() -> Result<PathBuf> {
    let directory = workspace::target_directory()?.join("dashboards");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

fn must_be_fresh(generator: &Generator, committed: &[PathBuf]) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    generator.generate(scratch.path())?;
    let name = |path: &PathBuf| path.file_name().map(ToOwned::to_owned);
    let fresh = files(scratch.path())?;
    ensure!(
        fresh.iter().map(name).eq(committed.iter().map(name)),
        "dashboards/*.json are not the dashboards that dashboards/src generates: run `cargo xtask \
         dashboards` and commit, or delete what is there no more"
    );
    for (fresh, committed) in fresh.iter().zip(committed) {
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        ensure!(
            read(fresh)? == read(committed)?,
            "{} is stale: run `cargo xtask dashboards` and commit",
            committed.display()
        );
    }
    Ok(())
}

/// Grafana's linter, whose exceptions are in `dashboards/.lint`.
fn lint(go: &Go, dashboards: &[PathBuf]) -> Result<()> {
    let linter = build_directory()?.join("dashboard-linter");
    go.build(
        &directory().join("linter"),
        "github.com/grafana/dashboard-linter",
        &linter,
    )?;
    for dashboard in dashboards {
        process::succeed(
            std::process::Command::new(&linter)
                .args(["lint", "--strict"])
                .arg(dashboard),
        )?;
    }
    Ok(())
}
