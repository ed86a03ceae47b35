//! `cargo xtask bench probes`: what probes cost a server, evictscope's and others'.
//!
//! Each round measures the same two servers, one of them watched by each side in turn. Only measurements of one round
//! are compared. The servers have a core of their own.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;
use evictscope_testkit::threads::Cores;

use crate::side::{CONDITIONS, Condition, Said, Side, Target, Took, Twins};

/// What to measure, and how long.
#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every side once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A redis-server or valkey-server other than the one on PATH
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

pub struct Measurement {
    pub took: Took,
    /// What the side says about it.
    pub said: Said,
}

pub fn run(arguments: &Arguments, agent: &Path) -> Result<()> {
    let target = Target::find(arguments.server.as_deref())?;
    let interrupted = process::catch_ctrl_c()?;

    let cores = Cores::split()?;
    println!("server   {}: {}", target.program.display(), target.version);
    println!("function {}", target.function);
    if cores.is_none() {
        println!("there is only one core: the load slows the servers down");
    }
    for condition in &CONDITIONS {
        println!("\n{} server: maxmemory {}, {} rounds", condition.name, condition.maxmemory, arguments.rounds);
        let twins = Twins::start(&target, condition, cores.as_ref())?;
        let mut rounds = Vec::new();
        print_heading();
        for round in 0..arguments.rounds {
            let is_reversed = round % 2 == 1;
            let mut order = Side::ALL;
            if is_reversed {
                order.reverse();
            }
            let mut sides = Vec::new();
            for side in order {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                let measured = measure(side, agent, &twins, &target, condition);
                sides.push(measured.with_context(|| side.name())?);
            }
            if is_reversed {
                sides.reverse();
            }
            print_round(round, &sides);
            rounds.push(sides);
        }
        print(condition, &rounds);
    }
    Ok(())
}

/// Measures the servers under load once, while a side watches one of them.
fn measure(side: Side, agent: &Path, twins: &Twins, target: &Target, condition: &Condition) -> Result<Measurement> {
    let watch = side.watch(agent, &twins.watched, target)?;
    let took = twins.load()?;
    let said = watch.finish(&twins.watched, took.commands)?;
    ensure!(
        !condition.evicts || said.evicting_share.is_none_or(|share| share > 0.5),
        "hardly any command evicted: this is not the intended load"
    );
    Ok(Measurement { took, said })
}

/// What a table says about each side: its heading, its digits, and its value in one round.
type Column = (&'static str, usize, fn(&Round<'_>) -> f64);

const OF_COMMANDS: [Column; 4] = [
    ("CPU of the main thread for a command, times that of an unwatched server", 2, |round| {
        by_twin(round.with) / by_twin(round.bare)
    }),
    ("ns added to a command", 0, |round| round.added()),
    ("the same, by what funclatency adds", 2, |round| round.added() / (added(round.funclatency) - added(round.bare))),
    ("the same, by what evictscope says", 2, |round| round.added() / round.with.said.cost_ns.unwrap_or(f64::NAN)),
];

/// The same for a server that evicts.
const OF_EVICTING_CALLS: [Column; 1] =
    [("ns added to an evicting call", 0, |round| round.added() / round.evicting_share)];

/// The measurements of one round that are compared.
struct Round<'a> {
    with: &'a Measurement,
    bare: &'a Measurement,
    funclatency: &'a Measurement,
    /// All sides that count evicting calls count the same load.
    evicting_share: f64,
}

impl Round<'_> {
    /// Returns what watching added to a command. Twins differ a little even if nobody watches.
    fn added(&self) -> f64 {
        added(self.with) - added(self.bare)
    }
}

/// Returns what a command of the watched server took, as a multiple of its twin's.
fn by_twin(measured: &Measurement) -> f64 {
    measured.took.watched_ns / measured.took.other_ns
}

/// Returns how much more a command of the watched server took.
fn added(measured: &Measurement) -> f64 {
    measured.took.watched_ns - measured.took.other_ns
}

/// Prints the heading above [`print_round`]'s lines.
pub fn print_heading() {
    let names = Side::ALL.map(|side| format!("{:>25}", side.name()));
    println!("round {}  (ns of CPU for a SET)", names.concat());
}

/// Prints what commands took in one round.
pub fn print_round(round: u32, sides: &[Measurement]) {
    let times = (sides.iter()).map(|side| format!("{:>25.0}", side.took.watched_ns));
    println!("{:>5} {}", round + 1, times.collect::<String>());
}

/// Compares the sides, round by round, and prints the tables. Each round has a measurement of each side.
pub fn print(condition: &Condition, rounds: &[Vec<Measurement>]) {
    println!(
        "\n{} server, against the bare one of the same round: median [quartiles] (least … greatest)",
        condition.name
    );
    let position = |side| Side::ALL.iter().position(|one| *one == side);
    let compared = |index: usize| {
        rounds.iter().filter_map(move |round| {
            let shares = round.iter().filter_map(|side| side.said.evicting_share);
            Some(Round {
                with: round.get(index)?,
                bare: round.get(position(Side::Bare)?)?,
                funclatency: round.get(position(Side::FUNCLATENCY)?)?,
                evicting_share: Spread::of(shares).median,
            })
        })
    };
    let of_calls = OF_EVICTING_CALLS.iter().filter(|_| condition.evicts);
    for (heading, digits, value) in OF_COMMANDS.iter().chain(of_calls) {
        println!("{heading}");
        for (index, side) in Side::ALL.iter().enumerate() {
            let values = compared(index).map(|round| value(&round));
            // Not every side has every value.
            let mut values = values.filter(|value| !value.is_nan()).peekable();
            if *side != Side::Bare && values.peek().is_some() {
                let spread = Spread::of(values);
                println!("  {:<25} {}", side.name(), spread.text(*digits));
            }
        }
    }
}

/// Numbers that describe the spread of values. Without values they are NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the values are below this.
    pub median: f64,
    /// A quarter of the values are below the first, and a quarter above the second.
    quartiles: [f64; 2],
    /// The least and the greatest value.
    ends: [f64; 2],
}

impl Spread {
    /// Returns the spread of these values, in any order.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self {
            median: quantile(&values, 0.5),
            quartiles: [0.25, 0.75].map(|part| quantile(&values, part)),
            ends: [0.0, 1.0].map(|part| quantile(&values, part)),
        }
    }

    /// Returns the median, the quartiles in brackets, and the least and the greatest value in parentheses.
    pub fn text(&self, digits: usize) -> String {
        let (median, [lower, upper], [least, greatest]) = (self.median, self.quartiles, self.ends);
        format!("{median:.digits$} [{lower:.digits$} {upper:.digits$}] ({least:.digits$} … {greatest:.digits$})")
    }
}

/// Interpolates between the two neighbours of the rank.
fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let rank = quantile * last as f64;
    let below = rank.floor();
    let at = |rank: f64| sorted.get(rank as usize).copied().unwrap_or(f64::NAN);
    at(below) + (at(rank.ceil()) - at(below)) * (rank - below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_values() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread.text(2), "2.50 [1.75 3.25] (1.00 … 4.00)");
        assert!(Spread::of([]).median.is_nan());
    }
}
