//! `cargo xtask dashboards`: generates the Grafana dashboards, and checks them and the Prometheus rules.
//!
//! A Go program (`dashboards/src`) makes the dashboards with Grafana's Foundation SDK, and they are committed.
//! [`generated`] refuses a dashboard that is stale, not in Grafana's schema, or against the rules of Grafana's
//! linter. [`proof`] runs all their queries in a real Prometheus.

mod expected;
mod generated;
mod proof;
mod queries;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use evictscope_testkit::{debian, workspace};

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
        return generated::check();
    }
    generated::write()?;
    generated::check()?;
    check_rules()
}

/// Checks the rules, and the dashboards that they link to, as they are and without any server.
pub fn check_rules() -> Result<()> {
    rules::check(&sources().join("rules"))?;
    queries::check()
}

pub fn missing_rules() -> Option<String> {
    debian::missing(&debian::RULES)
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
