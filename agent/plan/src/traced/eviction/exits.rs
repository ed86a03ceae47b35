//! Where an evicting call ends: done sites by minimum cut, and where its result is.
//!
//! Between the deciding branch and the function's exits, every path of an evicting call must pass
//! exactly one done site. The sites are the vertices of a minimum cut of the control-flow graph,
//! weighted by what a probe costs there and by how much work would still follow it unmeasured; an
//! instruction that a loop can follow is no candidate, as the loop is the work. Where several cuts
//! cost the same, the one nearest to the exits. Edges against the flow of control make it cost
//! something when a path crosses the cut twice: the second hit counts nothing, but has its price.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef as _;

use crate::code::emulation;
use crate::code::graph::{EdgeKind, FunctionCode};
use crate::flow::execution::Execution;
use crate::flow::paths::{self, Point};
use crate::code::registers::RSP;
use crate::flow::flags::Flags;
use crate::flow::state::State;
use crate::flow::atom::Atom;
use crate::flow::value::{AtomId, Value};
use crate::plan::Operand;

/// Capacity of an edge that must not be cut.
const INFINITE: u64 = 1 << 40;
/// Factor for an instruction that calls below the limit execute, too: it would cost a healthy server.
const SHARED_FACTOR: u64 = 1_000;
/// What one unit of relative cost weighs.
const COST_WEIGHT: u64 = 16;
/// What each call that can still follow weighs: its work would not be measured.
const FOLLOWING_CALL_WEIGHT: u64 = 4;
/// Most following calls that are weighed.
const MAX_FOLLOWING_CALLS: u64 = 16;
/// What it weighs that a path crosses the cut a second time; less than one more site.
const SECOND_HIT_WEIGHT: u64 = 12;
/// What it weighs that the result is not known at an instruction; less than one more site.
const RESULT_UNKNOWN_WEIGHT: u64 = 24;
/// At most so many points are asked for the result.
const MAX_RESULTS: usize = 48;
/// Most instructions between which a cut is looked for; an eviction function has some hundred.
const MAX_POINTS: usize = 8_000;
/// What one of them takes.
const STEPS_OF_CUT: u64 = 32;
/// How many merges are taken apart, one after the other.
const MAX_SPLITS: u32 = 5;
/// In place of an address, for what a stack slot holds of which nothing is known.
const SLOT_CONTENT: u64 = u64::MAX - 1;
/// x86-64 number of the stack pointer, as plans write it.
const RSP_NUMBER: u8 = 4;
/// The values of `EVICT_OK`, `EVICT_RUNNING`, `EVICT_FAIL` (evict.c).
const RESULTS: [u64; 3] = [0, 1, 2];

/// A done site: block, index of the instruction in it, and the operand that holds the result.
#[derive(Debug)]
pub struct Exit {
    /// The instruction that the probe sits on.
    pub instruction: Instruction,
    /// Where the result is, if known.
    pub result: Option<Operand>,
}

/// Why there are no done sites.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExitError {
    /// A `switch` could not be followed.
    #[error("the indirect jump at {0:#x} could not be followed, so some way out may be missing")]
    Indirect(u64),
    /// No return is reachable from the goal.
    #[error("no return is reachable from the goal site")]
    NoReturn,
    /// Every cut goes through a loop or through the function's last instruction.
    #[error("no set of instructions separates the goal site from the function's exits")]
    NoCut,
}

/// Finds the done sites of the calls that take the edge into `over_block`.
///
/// # Errors
///
/// Where the graph is incomplete or has no usable cut.
pub fn find(
    execution: &mut Execution<'_>,
    deciding_block: usize,
    over_edge: EdgeKind,
    over_block: usize,
) -> Result<Vec<Exit>, ExitError> {
    let code = execution.code;
    if let Some(address) = code.unresolved_jumps.first() {
        return Err(ExitError::Indirect(*address));
    }
    let evicting = reachable(code, over_block, None);
    let slots = loaded_slots(execution, &evicting);
    let shared = reachable(code, 0, Some((deciding_block, over_edge)));
    let looping: BTreeSet<usize> = code.loops().into_iter().flatten().collect();
    let before_loop: BTreeSet<usize> = evicting
        .iter()
        .copied()
        .filter(|block| !reachable(code, *block, None).is_disjoint(&looping))
        .collect();

    let mut weights: BTreeMap<Point, u64> = BTreeMap::new();
    for block in &evicting {
        for (index, instruction) in code.blocks[*block].instructions.iter().enumerate() {
            let cost = u64::from(emulation::cost(instruction)) * COST_WEIGHT;
            let following = calls_from(code, (*block, index)).min(MAX_FOLLOWING_CALLS);
            let weight = match (before_loop.contains(block), shared.contains(block)) {
                (true, _) => INFINITE,
                (false, true) => (cost + following * FOLLOWING_CALL_WEIGHT) * SHARED_FACTOR,
                (false, false) => cost + following * FOLLOWING_CALL_WEIGHT,
            };
            weights.insert((*block, index), weight);
        }
    }
    // Whether the result is known is expensive to tell, so at first it counts as known everywhere.
    // Once it is known or weighed at each site of the least cut, no other cut can cost less.
    let mut results: BTreeMap<Point, Option<Operand>> = BTreeMap::new();
    loop {
        let cut = minimum_cut(code, &weights, over_block)?;
        let news: Vec<Point> = (cut.iter().copied())
            .filter(|point| !results.contains_key(point))
            .collect();
        if news.is_empty() || results.len() >= MAX_RESULTS {
            return Ok(cut
                .into_iter()
                .map(|(block, index)| Exit {
                    instruction: code.blocks[block].instructions[index],
                    result: results.remove(&(block, index)).flatten(),
                })
                .collect());
        }
        for point in news {
            let state = execution.states_in(point.0).into_iter().nth(point.1);
            let result = state.and_then(|state| result_at(execution, &state, point, &slots));
            if result.is_none()
                && let Some(weight) = weights.get_mut(&point)
            {
                *weight += RESULT_UNKNOWN_WEIGHT;
            }
            results.insert(point, result);
        }
    }
}

/// The points that a minimum cut between `from` and the returns consists of, each of which weighs
/// what `weights` says; of several such cuts the one nearest to the returns.
fn minimum_cut(
    code: &FunctionCode,
    weights: &BTreeMap<Point, u64>,
    from: usize,
) -> Result<Vec<Point>, ExitError> {
    if weights.len() > MAX_POINTS || !code.budget.spend(STEPS_OF_CUT * weights.len() as u64) {
        code.budget.exhaust();
        return Err(ExitError::NoCut);
    }
    let mut network = DiGraph::<(), u64>::new();
    let source = network.add_node(());
    let sink = network.add_node(());
    let mut nodes: BTreeMap<Point, (NodeIndex, NodeIndex)> = BTreeMap::new();
    for (point, weight) in weights {
        let pair = (network.add_node(()), network.add_node(()));
        nodes.insert(*point, pair);
        network.add_edge(pair.0, pair.1, *weight);
        network.add_edge(pair.1, pair.0, INFINITE);
    }
    let mut leaves = false;
    for (block, index) in weights.keys() {
        let last = code.blocks[*block].instructions.len() - 1;
        if *index < last {
            connect(&mut network, &nodes, (*block, *index), (*block, index + 1));
            continue;
        }
        for (successor, _) in &code.blocks[*block].successors {
            connect(&mut network, &nodes, (*block, last), (*successor, 0));
        }
        if code.blocks[*block].leaves {
            leaves = true;
            network.add_edge(nodes[&(*block, last)].1, sink, INFINITE);
        }
    }
    if !leaves {
        return Err(ExitError::NoReturn);
    }
    network.add_edge(source, nodes[&(from, 0)].0, INFINITE);
    let (flow, flows) = dinics(&network, source, sink);
    if flow >= INFINITE {
        return Err(ExitError::NoCut);
    }
    let beyond = can_reach_sink(&network, &flows, sink);
    Ok(nodes
        .into_iter()
        .filter(|(_, (before, after))| !beyond.contains(before) && beyond.contains(after))
        .map(|(point, _)| point)
        .collect())
}

fn connect(
    network: &mut DiGraph<(), u64>,
    nodes: &BTreeMap<Point, (NodeIndex, NodeIndex)>,
    from: Point,
    to: Point,
) {
    if let (Some(from), Some(to)) = (nodes.get(&from), nodes.get(&to)) {
        network.add_edge(from.1, to.0, INFINITE);
        network.add_edge(to.0, from.1, SECOND_HIT_WEIGHT);
    }
}

/// The nodes from which the sink can still be reached in the residual network.
fn can_reach_sink(
    network: &DiGraph<(), u64>,
    flows: &[u64],
    sink: NodeIndex,
) -> BTreeSet<NodeIndex> {
    let mut seen = BTreeSet::from([sink]);
    let mut pending = vec![sink];
    while let Some(node) = pending.pop() {
        let forward = network
            .edges_directed(node, petgraph::Incoming)
            .filter(|edge| flows[edge.id().index()] < *edge.weight())
            .map(|edge| edge.source());
        let backward = network
            .edges_directed(node, petgraph::Outgoing)
            .filter(|edge| flows[edge.id().index()] > 0)
            .map(|edge| edge.target());
        for next in forward.chain(backward) {
            if seen.insert(next) {
                pending.push(next);
            }
        }
    }
    seen
}

/// The blocks reachable from `from`, without passing the edge `except`.
fn reachable(
    code: &FunctionCode,
    from: usize,
    except: Option<(usize, EdgeKind)>,
) -> BTreeSet<usize> {
    let mut seen = BTreeSet::from([from]);
    let mut pending = vec![from];
    while let Some(block) = pending.pop() {
        if !code.budget.spend(2) {
            break;
        }
        for (successor, kind) in &code.blocks[block].successors {
            if except != Some((block, *kind)) && seen.insert(*successor) {
                pending.push(*successor);
            }
        }
    }
    seen
}

/// How many calls can follow from `point` on, itself included.
fn calls_from(code: &FunctionCode, (block, index): Point) -> u64 {
    let calls = |instructions: &[Instruction]| {
        let is_call = |instruction: &&Instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        };
        instructions.iter().filter(is_call).count() as u64
    };
    let here = code.blocks[block]
        .instructions
        .get(index..)
        .map_or(0, calls);
    let later: u64 = reachable(code, block, None)
        .into_iter()
        .filter(|other| *other != block)
        .map(|other| calls(&code.blocks[other].instructions))
        .sum();
    here + later
}

/// What the function will return from `point` on: always the same, or what a register holds, or one
/// more (compilers tell the results apart by `result - 1 ≤ 1`), or what a stack slot holds (as
/// without optimisation).
fn result_at(
    execution: &mut Execution<'_>,
    state: &State,
    point: Point,
    slots: &BTreeSet<i64>,
) -> Option<Operand> {
    let returned = returned_from(execution, state.clone(), point)?;
    if let [only] = returned.as_slice()
        && let Some(result) = only.as_constant().filter(|result| RESULTS.contains(result))
    {
        return Some(Operand::Constant(result.cast_signed()));
    }
    // Callee-saved registers first: they hold what is kept.
    let order = [3, 5, 12, 13, 14, 15, 0, 1, 2, 6, 7, 8, 9, 10, 11];
    let registers = [0, 1].into_iter().flat_map(|plus| {
        order.map(|number| Place {
            holder: Holder::Register(number),
            plus,
        })
    });
    let slots_of_results = slots.iter().map(|offset| Place {
        holder: Holder::Slot(*offset),
        plus: 0,
    });
    let state = with_slots(execution, state, slots);
    let place = registers
        .chain(slots_of_results)
        .find(|place| holds_result(execution, &state, point, *place, MAX_SPLITS))?;
    match place.holder {
        Holder::Register(number) => Some(Operand::Register {
            number,
            width: 4,
            plus: i64::from(place.plus),
        }),
        Holder::Slot(offset) => {
            let top = execution.stack_offset(&state.registers[RSP])?;
            Some(Operand::Memory {
                base: RSP_NUMBER,
                displacement: offset.wrapping_sub(top),
                width: 4,
            })
        }
    }
}

/// The 4-byte stack slots, by their offset from the stack pointer at entry, that `blocks` load into
/// the register that results are returned in.
fn loaded_slots(execution: &mut Execution<'_>, blocks: &BTreeSet<usize>) -> BTreeSet<i64> {
    let code = execution.code;
    let mut slots = BTreeSet::new();
    for block in blocks {
        let loads: Vec<usize> = (code.blocks[*block].instructions.iter().enumerate())
            .filter(|(_, load)| {
                load.code() == Code::Mov_r32_rm32
                    && load.op0_register() == Register::EAX
                    && load.op1_kind() == OpKind::Memory
            })
            .map(|(index, _)| index)
            .collect();
        if loads.is_empty() {
            continue;
        }
        let states = execution.states_in(*block);
        for (load, state) in loads.into_iter().filter_map(|index| {
            Some((
                code.blocks[*block].instructions.get(index)?,
                states.get(index)?,
            ))
        }) {
            slots.extend(execution.stack_operand_offset(state, load));
        }
    }
    slots
}

/// `state` with a value for each of the slots of which nothing is known.
fn with_slots(execution: &mut Execution<'_>, state: &State, slots: &BTreeSet<i64>) -> State {
    let mut state = state.clone();
    for (index, offset) in (0..).zip(slots) {
        if !state.stack.contains_key(offset) {
            let value = execution.atoms.value(Atom::Opaque {
                address: SLOT_CONTENT,
                index,
            });
            state.store_slot(*offset, 4, value);
        }
    }
    state
}

/// What can hold the result.
#[derive(Clone, Copy)]
enum Holder {
    /// A register, by its x86-64 number.
    Register(u8),
    /// A stack slot, by its offset from the stack pointer at entry.
    Slot(i64),
}

/// A holder and what to add to what it holds.
#[derive(Clone, Copy)]
struct Place {
    holder: Holder,
    plus: u8,
}

/// Whether, for each possible result, every path that is possible when the place holds it returns
/// it. Where that cannot be seen, because registers and flags come from several ways, it is asked
/// for each way.
fn holds_result(
    execution: &mut Execution<'_>,
    state: &State,
    point: Point,
    place: Place,
    splits: u32,
) -> bool {
    let value = match place.holder {
        Holder::Register(number) => state.registers.get(usize::from(number)),
        Holder::Slot(offset) => state.stack.get(&offset).map(|(value, _)| value),
    };
    let Some(value) = value.cloned() else {
        return false;
    };
    let low = execution.atoms.zero_extended(&value, 32);
    let held = low.offset(u64::from(place.plus));
    let held = execution.atoms.zero_extended(&held, 32);
    if let Some(result) = held.as_constant() {
        return RESULTS.contains(&result) && returns_only(execution, state.clone(), point, result);
    }
    let Some((atom, constant)) = variable_part(execution, &value) else {
        return false;
    };
    let each_result = RESULTS.iter().all(|result| {
        let by = Value::constant(*result)
            .minus(&Value::constant(u64::from(place.plus)))
            .minus(&Value::constant(constant.cast_unsigned()));
        let mut assumed = state.clone();
        substitute_state(execution, &mut assumed, atom, &by);
        returns_only(execution, assumed, point, *result)
    });
    if each_result || splits == 0 {
        return each_result;
    }
    let Some(Atom::Merged { address, options }) = execution.atoms.get(atom).cloned() else {
        return false;
    };
    let merged = execution.atoms.merged_at(address);
    (0..options.len()).all(|way| {
        let mut on_way = state.clone();
        for (atom, options) in &merged {
            if let Some(option) = options.get(way) {
                substitute_state(execution, &mut on_way, *atom, option);
            }
        }
        holds_result(execution, &on_way, point, place, splits - 1)
    })
}

/// The one atom that a value depends on, and what is added to it, over 32 bits.
fn variable_part(execution: &Execution<'_>, value: &Value) -> Option<(AtomId, i64)> {
    let (atom, constant) = value.as_atom_plus_constant()?;
    match execution.atoms.get(atom)? {
        Atom::ZeroExtended { bits: 32, of } if constant == 0 => {
            of.as_atom_plus_constant().or(Some((atom, constant)))
        }
        _ => Some((atom, constant)),
    }
}

fn returns_only(execution: &mut Execution<'_>, state: State, point: Point, result: u64) -> bool {
    returned_from(execution, state, point).is_some_and(|returned| {
        returned
            .iter()
            .all(|value| value.as_constant() == Some(result))
    })
}

fn substitute_state(execution: &mut Execution<'_>, state: &mut State, atom: AtomId, by: &Value) {
    for register in &mut state.registers {
        *register = execution.atoms.substitute(register, atom, by);
    }
    for (value, _) in state.stack.values_mut() {
        *value = execution.atoms.substitute(value, atom, by);
    }
    match &mut state.flags {
        Flags::Unknown => {}
        Flags::Comparison { left, right, .. } => {
            *left = execution.atoms.substitute(left, atom, by);
            *right = execution.atoms.substitute(right, atom, by);
        }
        Flags::ZeroAndSign { of, .. } => *of = execution.atoms.substitute(of, atom, by),
    }
}

/// What the function can return on the paths from `point`, over 32 bits.
fn returned_from(execution: &mut Execution<'_>, state: State, point: Point) -> Option<Vec<Value>> {
    let mut returned: Vec<Value> = Vec::new();
    for state in paths::to_returns(execution, state, point)? {
        let value = execution.atoms.zero_extended(&state.registers[0], 32);
        if !returned.contains(&value) {
            returned.push(value);
        }
    }
    Some(returned)
}
