//! Tables.

use crate::{
    side::Side,
    spread::Spread,
    target::{Condition, Measurement},
};

/// The share of its time that the main thread must be busy if it is what limits the rate.
const BUSY: f64 = 0.9;

/// What a table says of each side: its heading, its digits, and its value in one round.
type Column = (&'static str, usize, fn(&Round<'_>) -> f64);

const OF_COMMANDS: [Column; 5] = [
    ("throughput", 3, |round| round.with.rate / round.bare.rate),
    ("ns added to a command", 0, |round| round.added()),
    ("of these, CPU of the main thread", 0, |round| {
        round.added_cpu()
    }),
    ("the same, by what funclatency adds", 2, |round| {
        round.added_cpu() / (round.funclatency.cpu - round.bare.cpu)
    }),
    ("the same, by what evictscope says", 2, |round| {
        round.added_cpu() / round.with.said.unwrap_or(f64::NAN)
    }),
];

/// The same of a server that evicts.
const OF_EVICTING_CALLS: [Column; 2] = [
    ("ns added to an evicting call", 0, |round| {
        round.added() / round.evicting_share
    }),
    ("of these, CPU of the main thread", 0, |round| {
        round.added_cpu() / round.evicting_share
    }),
];

/// The measurements of one round that are compared.
struct Round<'a> {
    with: &'a Measurement,
    bare: &'a Measurement,
    funclatency: &'a Measurement,
    /// All sides that count evicting calls count the same load.
    evicting_share: f64,
}

impl Round<'_> {
    fn added(&self) -> f64 {
        1e9 / self.with.rate - 1e9 / self.bare.rate
    }

    fn added_cpu(&self) -> f64 {
        self.with.cpu - self.bare.cpu
    }
}

/// The heading above [`print_round`]'s lines.
pub fn print_heading() {
    let names = Side::ALL.map(|side| format!("{:>25}", side.name()));
    println!("round {}  (SET/s)", names.concat());
}

/// The rates of one round.
pub fn print_round(round: u32, sides: &[Measurement]) {
    let rates = sides.iter().map(|side| format!("{:>25.0}", side.rate));
    println!("{:>5} {}", round + 1, rates.collect::<String>());
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
            let shares = round.iter().filter_map(|side| side.evicting_share);
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
            // Not every side says all.
            let mut values = values.filter(|value| !value.is_nan()).peekable();
            if *side != Side::Bare && values.peek().is_some() {
                let spread = Spread::of(values);
                println!("  {:<25} {}", side.name(), spread.text(*digits));
            }
        }
    }
    let busy = rounds.iter().filter_map(|round| {
        let bare = round.get(position(Side::Bare)?)?;
        Some(bare.cpu * bare.rate / 1e9)
    });
    let busy = Spread::of(busy).median;
    if busy < BUSY {
        // Then the server did not limit the rates.
        println!(
            "\nThe bare server's main thread was busy only {:.0} % of the time: its rates depend \
             on something else, too. Trust the CPU time.",
            busy * 100.0
        );
    }
}
