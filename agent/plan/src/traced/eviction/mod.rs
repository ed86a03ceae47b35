//! The eviction call: `performEvictions()`, before 6.2 `freeMemoryIfNeeded()`.
//!
//! Its symbol, and the text under which it reports its duration, tell which function it is. (The latency report
//! mentions that text too, but does not read `maxmemory-policy`.) [`inlined`] and [`called`] find where it computes the
//! goal of an evicting call, by its comparisons with `maxmemory`. [`pool()`] finds the array of the best keys to evict,
//! the best last, from which it chooses: its address is in a global. [`agreement`] tells whether the debug information
//! says the same.

use evictscope_abi::VARIABLES;
use evictscope_machine::code::FunctionCode;
use evictscope_machine::dwarf::Asked;
use evictscope_machine::elf::Image;
use evictscope_machine::flow::{Atoms, Execution, Operand, State, counted_in_loops, reached_by_pointers, returns};
use evictscope_machine::sites::{Calls, Site, cheapest};
use evictscope_model::{FileAddress, Member};

use self::inlined::{GoalCopy, blocks_before_eviction};
use super::{Analysis, Traced};
use crate::item::{Description, FunctionKind, Item, Method, Reason};
use crate::members;
use crate::names::Texts;
use crate::plan::{FunctionPlan, QuantityPlan, TracedFunction};

mod agreement;
mod called;
mod inlined;

/// The eviction call.
pub const EVICTION_CALL: Traced = Traced {
    description: &Description { kind: "eviction_call", prefix: "eviction", inner: Some("goal"), exit: "done" },
    texts: &[TEXT],
    plan,
};

/// The values of `EVICT_OK`, `EVICT_RUNNING`, `EVICT_FAIL` (evict.c).
const RESULTS: &[u64] = &[0, 1, 2];
/// The values of `C_OK` and `C_ERR`, over 32 bits (server.h), which it returns before 6.2.
const RESULTS_BEFORE_6_2: &[u64] = &[0, C_ERR as u64];
/// Those of a function that returns some of both.
const ALL_RESULTS: &[u64] = &[0, 1, 2, C_ERR as u64];
const C_ERR: u32 = u32::MAX;
/// Without the configuration table the goal cannot be looked for.
const NO_MAXMEMORY: &str = "without the address of maxmemory the calculation cannot be recognised";
/// The configuration table and the debug information disagree about it.
const UNCERTAIN_MAXMEMORY: &str = "it is not certain where maxmemory is";
/// All evicting calls share the deciding branch with others, and nothing else.
const NO_SITE: &str = "no instruction after the deciding branch";

fn plan(analysis: &mut Analysis<'_, '_>, kind: FunctionKind) -> Option<TracedFunction> {
    let (name, address) = locate(analysis).map_err(|why| analysis.miss(Item::Function(kind), why)).ok()?;
    let (mut function, code) = analysis.begin(kind, name, address)?;
    let mut execution = Execution::run(&code);
    let goal = find_goal(analysis, &mut execution).map_err(|why| analysis.miss(Item::Inner(kind), why)).ok();
    analysis.evidence.counted = counted_in_loops(&mut execution);
    analysis.evidence.pool = pool(&mut execution);
    let mut quantities = Vec::new();
    if let Some(goal) = goal {
        if let Some((site, found)) = goal_site(analysis, kind, &mut execution, &goal) {
            function.span.inner.push(site);
            quantities = found;
        }
        let calls = Calls {
            block: goal.over_block,
            by: &[(goal.deciding_block, goal.over_edge)],
            inner: function.span.inner.first().map(|site| site.address),
            ends_at_inner: true,
            work: &[],
        };
        let results = results(&mut execution);
        let missed = analysis.not_found.len();
        function.span.exits = analysis.exits(kind, &mut execution, calls, results);
        if !function.span.exits.is_empty() && analysis.not_found.len() > missed {
            analysis.not_found.truncate(missed);
            function.span.exits = analysis.exits(kind, &mut near(&code), calls, results);
        }
    }
    function.plan = FunctionPlan::Eviction(quantities);
    Some(function)
}

/// Returns all results that the function can have, over 32 bits.
fn results(execution: &mut Execution<'_>) -> &'static [u64] {
    let numbers = returns::numbers(execution);
    match (numbers.contains(&C_ERR), numbers.range(1..=2).next()) {
        (false, _) => RESULTS,
        (true, None) => RESULTS_BEFORE_6_2,
        (true, Some(_)) => ALL_RESULTS,
    }
}

/// Returns name and address of the function. If DWARF has it too, both must agree.
fn locate(analysis: &mut Analysis<'_, '_>) -> Result<(&'static str, FileAddress), Reason> {
    let policy = analysis.config.get(&Member::MaxmemoryPolicy).copied();
    let (name, address) = eviction_call(analysis.image, analysis.texts, policy).map_err(Reason::Sentence)?;
    analysis.read_debug_info(Asked { names: &NAMES, entry: Some(address) });
    match analysis.debug.eviction_function {
        Some(other) if other.address != address => Err(Reason::Sentence(format!(
            "{name} is at {address:#x}, but DWARF has {} at {:#x}: debug information of another build",
            other.name, other.address
        ))),
        _ => Ok((name, address)),
    }
}

/// Returns the calculation of the goal, called or inlined, and notes the allocator's counters behind it.
fn find_goal(analysis: &mut Analysis<'_, '_>, execution: &mut Execution<'_>) -> Result<GoalCopy, Reason> {
    let maxmemory = analysis.config.get(&Member::Maxmemory).copied().ok_or(Reason::Unrecognised(NO_MAXMEMORY))?;
    if maxmemory_by_dwarf(analysis).is_some_and(|other| other != maxmemory) {
        return Err(Reason::Unrecognised(UNCERTAIN_MAXMEMORY));
    }
    // A called copy comes first if there is one: code inlined after it in the same function only
    // checks whether enough was freed.
    let policy = analysis.config.get(&Member::MaxmemoryPolicy).copied();
    let before = blocks_before_eviction(execution, policy);
    let called = called::find(analysis.image, execution, &before, maxmemory);
    if let Some(Ok((goal, counters))) = called {
        analysis.evidence.counters = Some(counters);
        return Ok(goal);
    }
    let not_called = called.and_then(Result::err);
    let goal = inlined::find(execution, &before, maxmemory).map_err(|why| not_called.unwrap_or(why))?;
    let counters = members::counters_behind(analysis.image, &goal.mem_reported, execution);
    analysis.evidence.counters = Some(counters);
    Ok(goal)
}

fn maxmemory_by_dwarf(analysis: &Analysis<'_, '_>) -> Option<FileAddress> {
    let server = analysis.debug.server.as_ref()?;
    let offset = server.members.get(&Member::Maxmemory)?;
    Some(server.address.wrapping_add(*offset))
}

/// Plans the goal site, and how to compute the variables there.
fn goal_site(
    analysis: &mut Analysis<'_, '_>,
    kind: FunctionKind,
    execution: &mut Execution<'_>,
    goal: &GoalCopy,
) -> Option<(Site, Vec<QuantityPlan>)> {
    let wanted = VARIABLES.map(|variable| goal.value(variable));
    let last_resort =
        Operand::Global { address: *analysis.config.get(&Member::Maxmemory)?, name: "server.maxmemory".to_owned() };
    let candidates = inlined::after_decision(execution, goal);
    let best = cheapest(execution, candidates, &wanted, (&last_resort, &goal.maxmemory));
    let Some((instruction, recipes)) = best else {
        analysis.miss(Item::Inner(kind), Reason::Unrecognised(NO_SITE));
        return None;
    };
    let mut quantities = Vec::new();
    for (quantity, recipe) in VARIABLES.into_iter().zip(recipes) {
        match recipe {
            Some(recipe) => quantities.push(QuantityPlan { quantity, recipe, method: Method::Dataflow }),
            None => analysis.miss(Item::Quantity(quantity), Reason::OutOfReach),
        }
    }
    let confirms_maxmemory = maxmemory_by_dwarf(analysis).is_some();
    let different = agreement::of_quantities(execution, goal, &analysis.debug, confirms_maxmemory, &mut quantities);
    for (quantity, why) in different {
        analysis.miss(Item::Quantity(quantity), why);
    }
    Some((Site::at(analysis.image, &instruction)?, quantities))
}

/// How far what a callee is given on the stack is assumed to reach, in bytes: a number. The address of the pool, or the
/// result, may be beside it.
const REACH: i64 = 8;
/// How many blocks it takes at most from the head of the loop over the pool to the entry.
const AHEAD: u32 = 4;
/// Offsets of its last entry and of the key in it, in bytes: 16 entries of 32 bytes.
const LAST: [i64; 2] = [15 * 32, 15 * 32 + 8];

/// Returns the address of that global, if the function reaches the last entry of a single pool.
pub fn pool(execution: &mut Execution<'_>) -> Option<FileAddress> {
    let only = |execution: &mut Execution<'_>, ahead| {
        let mut found = reached_by_pointers(execution, &LAST, ahead).into_iter();
        found.next().filter(|_| found.next().is_none())
    };
    only(execution, 0).or_else(|| only(&mut near(execution.code), AHEAD))
}

/// Executes the function if what callees are given on the stack reaches no farther than [`REACH`].
fn near(code: &FunctionCode) -> Execution<'_> {
    let mut atoms = Atoms::new(code.architecture, code.budget.clone());
    atoms.limits.reach = Some(REACH);
    let entry = State::at_entry(&mut atoms);
    Execution::run_from(code, entry, atoms, None)
}

/// Its names, newest first.
pub const NAMES: [&str; 2] = ["performEvictions", "freeMemoryIfNeeded"];
/// The text under which it reports its duration.
pub const TEXT: &str = "eviction-cycle";
/// A directive that Redis has had since the function was renamed.
const SINCE_RENAMED: &str = "maxmemory-eviction-tenacity";
/// The most functions that are looked into.
const MAX_FUNCTIONS: usize = 8;

/// Returns name and address of the eviction call. `policy` is the address of `server.maxmemory_policy`.
/// Fails if it is not certain which function it is, or if symbol and text contradict each other.
pub fn eviction_call(
    image: &Image<'_>,
    texts: &Texts,
    policy: Option<FileAddress>,
) -> Result<(&'static str, FileAddress), String> {
    let named = NAMES.iter().find_map(|name| Some((*name, image.symbols.function(name)?.address)));
    let mentioned = if texts.has(TEXT) { Some(by_text(image, texts, policy)) } else { None };
    match (named, mentioned) {
        (None, None) => {
            Err(format!("no function called {}, nor the text \"{TEXT}\": not a Redis server", NAMES.join(" or ")))
        }
        (Some(named), None) => Ok(named),
        // Without its bounds, or the policy to recognise it by, only the named function itself can be checked.
        (Some((name, address)), Some(_)) if image.frames.at(address).is_none() || policy.is_none() => {
            let places = texts.places_of(TEXT);
            if mentions(image, address, |place| places.contains(&place)) {
                Ok((name, address))
            } else {
                Err(format!("{name} is at {address:#x}, but does not mention the text \"{TEXT}\""))
            }
        }
        (None, Some(mentioned)) => {
            let is_renamed = !image.find_string(SINCE_RENAMED).is_empty();
            Ok((NAMES[usize::from(!is_renamed)], mentioned?))
        }
        (Some((name, address)), Some(mentioned)) => match mentioned {
            Ok(mentioned) if mentioned == address => Ok((name, address)),
            Ok(mentioned) => Err(format!(
                "{name} is at {address:#x}, but the function that reports its duration as \"{TEXT}\" is at {mentioned:#x}"
            )),
            Err(why) => Err(format!("{name} is at {address:#x}, but {why}")),
        },
    }
}

/// Returns the only function that mentions the text and reads the policy.
fn by_text(image: &Image<'_>, texts: &Texts, policy: Option<FileAddress>) -> Result<FileAddress, String> {
    let policy = policy.ok_or_else(|| format!("there is no table of configuration directives with maxmemory-policy, by which the function that mentions the text \"{TEXT}\" could be recognised"))?;
    let mut functions = texts.functions(image, TEXT);
    functions.truncate(MAX_FUNCTIONS);
    functions.retain(|function| reads(image, *function, policy));
    match functions.as_slice() {
        [only] => Ok(*only),
        [] => Err(format!(
            "no function listed in the unwind tables (.eh_frame) mentions the text \"{TEXT}\" and reads maxmemory-policy"
        )),
        several => Err(format!("{} functions mention the text \"{TEXT}\" and read maxmemory-policy", several.len())),
    }
}

/// Returns whether a function reads the global at `address`, through any register.
fn reads(image: &Image<'_>, function: FileAddress, address: FileAddress) -> bool {
    mentions(image, function, |mentioned| mentioned == address)
        || FunctionCode::decode(image, function).is_ok_and(|code| Execution::run(&code).atoms.loads(address))
}

/// Returns whether an instruction of a function mentions such an address.
fn mentions(image: &Image<'_>, function: FileAddress, is_meant: impl Fn(FileAddress) -> bool) -> bool {
    FunctionCode::decode(image, function).is_ok_and(|code| {
        let mut instructions = code.blocks.iter().flat_map(|block| &block.instructions);
        let mut mentions = image.architecture.mentions();
        instructions.any(|instruction| mentions.of(instruction).into_iter().any(&is_meant))
    })
}
