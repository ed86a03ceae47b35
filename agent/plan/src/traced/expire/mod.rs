//! The expire cycle: `activeExpireCycle()`, or the job in it that expires keys.
//!
//! [`entry`] tells which function it is. [`average`] finds the moving average that every cycle ends with which
//! gets past the early returns: [`start`] is the site that exactly those pass, with the type that [`kind`]
//! tells, and [`keys`] finds the counts that the average is made of.

mod average;
pub mod entry;
mod keys;
mod kind;
mod start;

use crate::code::instruction;
use crate::flow::cut::Point;
use crate::flow::execution::Execution;
use crate::item::{Description, FunctionKind, Item};
use crate::plan::{Exit, InnerSite, TracedFunction};
use crate::reason::Reason;
use crate::traced::analysis::{Analysis, Traced};
use crate::traced::exits::Calls;
use crate::traced::sites;
use crate::traced::weights::passed_blocks;
use keys::{Counts, Keys};
use kind::ByType;
use start::{Start, Work};

/// The expire cycle.
pub const EXPIRE_CYCLE: Traced = Traced {
    description: &Description {
        kind: "expire_cycle",
        prefix: "expire",
        inner: Some("start"),
        exit: "end",
        quantities: &[],
    },
    texts: &[entry::TEXT],
    plan,
};

/// The early returns and the rest cannot be told apart.
const NO_START: &str = "no instruction before the loop over databases is passed by all cycles that do anything, and no others";
/// The type is not in reach.
const NO_TYPE: &str = "no register or stack slot holds the type of the cycle where it starts";
/// The counts are not in reach.
const NO_KEYS: &str = "no register or stack slot is known to hold the number where the cycle ends";

fn plan(analysis: &mut Analysis<'_, '_>, kind: FunctionKind) -> Option<TracedFunction> {
    let cycle = entry::expire_cycle(analysis.image, analysis.texts)
        .map_err(|why| analysis.miss(Item::Function(kind), Reason::Function(why)))
        .ok()?;
    let (mut function, code) = analysis.begin(kind, cycle.name, cycle.address)?;
    let ends = average::blocks(analysis.image, &code);
    let mut by_type = cycle
        .type_register
        .map(|register| ByType::run(&code, register));
    let work = Work::before(&code, &ends);
    let Some(start) = work.start(&code, &ends, by_type.as_mut()) else {
        analysis.miss(Item::Inner(kind), Reason::Unrecognised(NO_START));
        return Some(function);
    };
    let mut execution = Execution::run(&code);
    function.exits = exits(analysis, kind, &mut execution, &work, &start);
    if start.cycle_type.is_none() {
        analysis.miss(Item::CycleType, Reason::Unrecognised(NO_TYPE));
    }
    function.inner = sites::site(analysis.image, &start.instruction).map(|site| InnerSite {
        site,
        quantities: Vec::new(),
        cycle_type: start.cycle_type,
    });
    Some(function)
}

/// Plans the exits of the cycles that pass the start, with the counts there.
fn exits(
    analysis: &mut Analysis<'_, '_>,
    kind: FunctionKind,
    execution: &mut Execution<'_>,
    work: &Work,
    start: &Start,
) -> Vec<Exit> {
    let calls = Calls {
        block: start.block,
        by: &work.entered_by,
        inner: Some(instruction::address(&start.instruction)),
    };
    let image = analysis.image;
    let counts = Counts::new(execution, &passed_blocks(execution.code, calls));
    let look = |execution: &mut Execution<'_>, point: Point| counts.at(image, execution, point);
    let found = analysis.exits_with(kind, execution, calls, look);
    type Count = fn(&Keys) -> bool;
    let wanted: [(Item, Count); 2] = [
        (Item::KeysSampled, |keys| keys.sampled.is_some()),
        (Item::KeysExpired, |keys| keys.expired.is_some()),
    ];
    for (item, is_known) in wanted {
        if !found.iter().all(|(_, keys)| is_known(keys)) {
            analysis.miss(item, Reason::Unrecognised(NO_KEYS));
        }
    }
    let exit = |(exit, keys): (Exit, Keys)| Exit {
        sampled: keys.sampled,
        expired: keys.expired,
        ..exit
    };
    found.into_iter().map(exit).collect()
}
