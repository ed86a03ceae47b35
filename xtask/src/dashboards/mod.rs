//! `cargo xtask dashboards`: generates the Grafana dashboards, and checks them and the Prometheus rules.
//!
//! A Go program (`dashboards/src`) makes the dashboards with Grafana's Foundation SDK, and they are
//! committed. [`generated`] refuses a dashboard that is stale, not in Grafana's schema, or against the
//! rules of Grafana's linter. [`proof`] asks a real Prometheus all their queries.

mod answers;
mod calm;
mod expected;
mod folders;
mod generated;
mod growing;
mod night;
mod pods;
mod proof;
mod queries;
mod recording;
mod rules;

use std::time::Duration;

use anyhow::{Result, bail};
use evictscope_testkit::debian;

pub use self::proof::{Subject, run as prove};

/// What to do instead.
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
    /// Instead, keep servers whose trouble is known for this many minutes, 30 if no number is given, and list which
    /// alerts fire about each (needs root and a release build)
    #[arg(
        long,
        value_name = "MINUTES",
        num_args = 0..=1,
        default_missing_value = "30",
        conflicts_with_all = ["live", "draw"]
    )]
    night: Option<u64>,
}

/// Generates the dashboards and checks them and the rules, or does what the arguments say instead.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.draw {
        return recording::draw();
    }
    debian::provide(&debian::DASHBOARDS)?;
    if let Some(reason) = missing() {
        bail!(reason);
    }
    if let Some(minutes) = arguments.night {
        return night::run(Duration::from_secs(60 * minutes));
    }
    if arguments.live {
        return prove(Subject::built()?);
    }
    generated::write()?;
    check()
}

/// Checks the dashboards and the rules as they are, without any server.
pub fn check() -> Result<()> {
    generated::check()?;
    rules::check(&folders::sources().join("rules"))?;
    pods::check()
}

/// Returns why they cannot be checked on this machine.
pub fn missing() -> Option<String> {
    debian::missing(&debian::DASHBOARDS)
}
