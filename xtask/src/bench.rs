//! `cargo xtask bench`: what the probes cost a server that is below its limit.
//!
//! The same redis-server and the same load, without and with the agent in each probe mode, in turn
//! within every round; what is compared is always of the same round.

use anyhow::{Result, ensure};

use crate::{
    agent::Agent,
    build,
    redis::{Server, measure_sets},
    workspace,
};

/// Far more than the load writes.
const MAXMEMORY: &str = "1gb";
/// What is compared with a server that nobody watches.
const MODES: [&str; 2] = ["evicting-only", "every-call"];

/// How long to measure.
#[derive(Clone, Copy, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every side once
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Requests of each measurement
    #[arg(long, default_value_t = 2_000_000)]
    requests: u32,
}

/// Measures and prints.
pub fn run(arguments: Arguments) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the agent attaches BPF programs, which needs root: run `cargo xtask bench` as root"
    );
    build::run()?;
    let binary = workspace::agent_binary()?;
    let server = Server::start(MAXMEMORY)?;
    // Fills the keys, so that all rounds overwrite.
    measure_sets(&server, arguments.requests)?;

    let mut rates: [Vec<f64>; MODES.len() + 1] = Default::default();
    println!("round  bare SET/s  evicting-only  every-call");
    for round in 0..arguments.rounds {
        let mut order: Vec<usize> = (0..rates.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let watching = match side.checked_sub(1).and_then(|mode| MODES.get(mode)) {
                Some(mode) => {
                    let mut agent = Agent::start(&binary, &["--probe-mode", mode])?;
                    agent.wait_for(&server, || false)?;
                    Some(agent)
                }
                None => None,
            };
            rates[side].push(measure_sets(&server, arguments.requests)?);
            drop(watching);
        }
        let last = rates
            .each_ref()
            .map(|side| side.last().copied().unwrap_or(0.0));
        println!(
            "{:>5}  {:>10.0}  {:>13.0}  {:>10.0}",
            round + 1,
            last[0],
            last[1],
            last[2]
        );
    }

    println!("\nagainst the bare server of the same round: median (least … greatest)");
    for (mode, watched) in MODES.iter().zip(&rates[1..]) {
        let pairs = || watched.iter().zip(&rates[0]);
        let ratio = Spread::of(pairs().map(|(watched, bare)| watched / bare).collect());
        let added = Spread::of(
            pairs()
                .map(|(watched, bare)| 1e9 / watched - 1e9 / bare)
                .collect(),
        );
        println!(
            "{mode:<14} throughput {:.3} ({:.3} … {:.3}), ns added to a command {:.0} ({:.0} … {:.0})",
            ratio.median, ratio.least, ratio.greatest, added.median, added.least, added.greatest
        );
    }
    Ok(())
}

/// Where the values of several rounds lie.
struct Spread {
    least: f64,
    median: f64,
    greatest: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let half = values.len() / 2;
        Self {
            least: at(0),
            median: match values.len() % 2 {
                0 => f64::midpoint(at(half.saturating_sub(1)), at(half)),
                _ => at(half),
            },
            greatest: at(values.len().saturating_sub(1)),
        }
    }
}
