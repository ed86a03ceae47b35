//! `cargo xtask dashboards`: generates the Grafana dashboards, and checks them and the Prometheus rules.
//!
//! A Go program (`dashboards/src`) makes the dashboards with Grafana's Foundation SDK, and they are committed.
//! [`check_generated`] refuses a dashboard that is stale, not in Grafana's schema, or against the rules of Grafana's
//! linter. [`proof`] runs all their queries in a real Prometheus.

mod proof;
mod queries;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{debian, process, workspace};

use crate::go::Go;

pub use self::proof::run as prove;

/// Whether to check only.
#[derive(clap::Args)]
pub struct Arguments {
    /// Instead, write nothing: check that the dashboards are as generated, in Grafana's schema, and pass its linter
    #[arg(long)]
    generated: bool,
}

/// Generates the dashboards and checks them and the rules, or does what the arguments say instead.
pub fn run(arguments: &Arguments) -> Result<()> {
    debian::require(&[&debian::RULES, &debian::GO])?;
    if arguments.generated {
        return check_generated();
    }
    generate(&built(&Go::find()?)?, &sources())?;
    for file in files(&sources())? {
        println!("written        {}", file.display());
    }
    check_generated()?;
    check_rules()
}

/// Checks the rules, and the dashboards that they link to, as they are and without any server.
pub fn check_rules() -> Result<()> {
    rules::check(&sources().join("rules"))?;
    queries::check()
}

fn sources() -> PathBuf {
    workspace::root().join("dashboards")
}

fn dashboards(folder: &Path) -> Result<Vec<PathBuf>> {
    workspace::files_ending(folder, "json")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Checks that the committed dashboards and rules are as generated, and that the dashboards are in Grafana's schema and
/// pass its linter. The exceptions from its rules are in `dashboards/.lint`.
fn check_generated() -> Result<()> {
    let go = Go::find()?;
    let generator = built(&go)?;
    must_be_fresh(&generator)?;
    let committed = dashboards(&sources())?;
    process::succeed(Command::new(&generator).arg("validate").args(&committed))?;
    let linter = workspace::target_folder("dashboards")?.join("dashboard-linter");
    go.build(&sources().join("linter"), "github.com/grafana/dashboard-linter", &linter)?;
    for dashboard in &committed {
        process::succeed(Command::new(&linter).args(["lint", "--strict"]).arg(dashboard))?;
    }
    println!("{} dashboards are as generated, in Grafana's schema, and pass its linter", committed.len());
    Ok(())
}

fn built(go: &Go) -> Result<PathBuf> {
    let program = workspace::target_folder("dashboards")?.join("generate");
    go.build(&sources().join("src"), ".", &program)?;
    Ok(program)
}

fn generate(generator: &Path, to: &Path) -> Result<()> {
    process::succeed(Command::new(generator).arg("generate").arg(to))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok([dashboards(folder)?, rules::files(&folder.join("rules"))?].concat())
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
