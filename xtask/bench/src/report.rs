//! Tables and targets.

use crate::{
    side::Side,
    spread::Spread,
    target::{Condition, Measurement, Target},
};

/// The share of its time that the main thread must be busy if it is what limits the rate.
const BUSY: f64 = 0.9;

/// The heading above [`print_round`]'s lines.
pub fn print_heading() {
    let names = Side::ALL.map(|side| format!("{:>25}", side.name()));
    println!("round {}  (SET/s)", names.concat());
}

/// The rates of one round.
pub fn print_round(round: u32, sides: &[Vec<Measurement>]) {
    let rates: String = sides
        .iter()
        .filter_map(|side| side.last())
        .map(|last| format!("{:>25.0}", last.rate))
        .collect();
    println!("{:>5} {rates}", round + 1);
}

/// One side in one condition, compared with the bare server of the same rounds.
struct Row {
    side: Side,
    rate: Spread,
    ratio: Spread,
    /// Share of the time that the main thread was on its core.
    busy: Spread,
    /// Nanoseconds that a command took longer.
    added: Spread,
    /// CPU time of a command alone, as a share of that while watched.
    cpu_ratio: Spread,
    /// Nanoseconds of CPU time that a command took more.
    added_cpu: Spread,
    /// The same as a multiple of what `funclatency` added in the same round.
    of_funclatency: Spread,
    /// The same two for one evicting call.
    per_evicting_call: Option<(Spread, Spread)>,
}

/// All sides in one condition.
pub struct Summary {
    condition: &'static str,
    rows: Vec<Row>,
}

impl Summary {
    /// Compares the sides, round by round.
    pub fn of(condition: &Condition, sides: &[Vec<Measurement>]) -> Self {
        let bare = sides.first().map_or(&[][..], Vec::as_slice);
        let funclatency = Side::ALL.iter().position(|side| *side == Side::FUNCLATENCY);
        let funclatency = funclatency.and_then(|index| sides.get(index));
        let of_funclatency = |round: usize, added: f64, without: &Measurement| {
            let rival = funclatency.and_then(|side| side.get(round));
            rival.map_or(f64::NAN, |rival| added / (rival.cpu - without.cpu))
        };
        // Of each round. All sides that count evicting calls count the same load.
        let share = |round: usize| {
            let shares = sides
                .iter()
                .filter_map(|side| side.get(round)?.evicting_share);
            Spread::of(shares).median
        };
        let rows = Side::ALL
            .into_iter()
            .zip(sides)
            .map(|(side, measured)| {
                let spread = |value: &dyn Fn(usize, &Measurement, &Measurement) -> f64| {
                    let pairs = (0..).zip(measured.iter().zip(bare));
                    Spread::of(pairs.map(|(round, (with, without))| value(round, with, without)))
                };
                let added = |with: &Measurement, without: &Measurement| {
                    1e9 / with.rate - 1e9 / without.rate
                };
                Row {
                    side,
                    rate: spread(&|_, with, _| with.rate),
                    ratio: spread(&|_, with, without| with.rate / without.rate),
                    busy: spread(&|_, with, _| with.cpu * with.rate / 1e9),
                    added: spread(&|_, with, without| added(with, without)),
                    cpu_ratio: spread(&|_, with, without| without.cpu / with.cpu),
                    added_cpu: spread(&|_, with, without| with.cpu - without.cpu),
                    of_funclatency: spread(&|round, with, without| {
                        of_funclatency(round, with.cpu - without.cpu, without)
                    }),
                    per_evicting_call: condition.evicts.then(|| {
                        (
                            spread(&|round, with, without| added(with, without) / share(round)),
                            spread(&|round, with, without| (with.cpu - without.cpu) / share(round)),
                        )
                    }),
                }
            })
            .collect();
        Self {
            condition: condition.name,
            rows,
        }
    }

    /// Prints the table.
    pub fn print(&self) {
        println!(
            "\n{} server, against the bare one of the same round: \
             median [quartiles] (least … greatest)",
            self.condition
        );
        let line = |cells: [&str; 6]| {
            let [side, rate, busy, ratio, added, cpu] = cells;
            println!("{side:<25} {rate:>9}  {busy:>4}  {ratio:<36} {added:<42} {cpu}");
        };
        line([
            "",
            "SET/s",
            "busy",
            "throughput",
            "ns added to a command",
            "of these, CPU of the main thread",
        ]);
        for row in &self.rows {
            let compared = row.side != Side::Bare;
            let text = |spread: &Spread, digits| match compared {
                true => spread.text(digits),
                false => String::new(),
            };
            line([
                &row.side.name(),
                &format!("{:.0}", row.rate.median),
                &format!("{:.2}", row.busy.median),
                &text(&row.ratio, 3),
                &text(&row.added, 0),
                &text(&row.added_cpu, 0),
            ]);
        }
        if self.rows.iter().any(|row| row.per_evicting_call.is_some()) {
            println!("\nns added to an evicting call, and of these, CPU of the main thread");
        }
        for row in self.rows.iter().filter(|row| row.side != Side::Bare) {
            if let Some((added, cpu)) = &row.per_evicting_call {
                println!(
                    "{:<25} {:<42} {}",
                    row.side.name(),
                    added.text(0),
                    cpu.text(0)
                );
            }
        }
        let busy = self.row(Side::Bare).map_or(f64::NAN, |row| row.busy.median);
        if busy < BUSY {
            // Then the server did not limit the rates.
            println!(
                "\nThe bare server's main thread was busy only {:.0} % of the time: its rates depend \
                 on something else, too. Trust the CPU time.",
                busy * 100.0
            );
        }
    }

    fn row(&self, side: Side) -> Option<&Row> {
        self.rows.iter().find(|row| row.side == side)
    }
}

/// Prints the targets and what was measured of each. A missed target is no failure of the benchmark.
pub fn print_targets(summaries: &[Summary], target: &Target) {
    let row = |condition: &str, side| {
        summaries
            .iter()
            .find(|summary| summary.condition == condition)?
            .row(side)
    };
    let added = |side| row("healthy", side).map_or(f64::NAN, |row| row.added.median);
    let funclatency = added(Side::FUNCLATENCY);
    let every_call = added(Side::EVERY_CALL);
    let both = |ours: f64| format!("{ours:.0} ns against {funclatency:.0} ns");

    println!("\ntargets (medians of the rounds, with their spread)");
    if let Some(row) = row("healthy", Side::EVICTING_ONLY) {
        verdict(
            "evicting-only, healthy: CPU time of a bare command at least 0.998 of a watched one's",
            row.cpu_ratio.median >= 0.998,
            &row.cpu_ratio.text(4),
        );
    }
    for (side, most) in [(Side::EVICTING_ONLY, 0.9), (Side::EVERY_CALL, 1.3)] {
        let Some(row) = row("evicting", side) else {
            continue;
        };
        verdict(
            &format!(
                "{}, evicting: adds at most {most} of the CPU time that funclatency adds",
                side.name()
            ),
            row.of_funclatency.median <= most,
            &row.of_funclatency.text(2),
        );
    }
    verdict(
        "evicting-only, healthy: adds at most a tenth of what funclatency adds",
        added(Side::EVICTING_ONLY) <= funclatency / 10.0,
        &both(added(Side::EVICTING_ONLY)),
    );
    verdict(
        "every-call, healthy: adds no more than funclatency",
        every_call <= funclatency,
        &both(every_call),
    );
    let quarter = "every-call, healthy, endbr64: adds at most a quarter of what funclatency adds";
    if target.endbr64 {
        verdict(quarter, every_call <= funclatency / 4.0, &both(every_call));
    } else {
        println!(
            "  n/a     {quarter}: {} of this build does not begin with endbr64; \
             --server PATH takes one that does",
            target.function
        );
    }
}

/// Prints one target and what was measured of it.
pub fn verdict(target: &str, met: bool, measured: &str) {
    let word = if met { "met" } else { "MISSED" };
    println!("  {word:<7} {target}: {measured}");
}
