//! A minimum cut: the cheapest points of a function such that every path to its returns passes exactly one.
//!
//! Points are the vertices of a network whose edges follow the flow of control. Of several cuts that cost the same, the
//! one nearest to the returns is taken. Edges against the flow of control, which no cut can contain, keep what follows
//! the cut from leading back before it, so that no path crosses it twice.

use std::collections::{BTreeMap, BTreeSet};

use evictscope_model::FileAddress;
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef as _;

use crate::code::graph::{BlockId, EdgeKind, FunctionCode, InstructionId};

/// Weight of a point that must not be in a cut.
pub const INFINITE: u64 = 1 << 40;
/// The most points between which to look for a cut; a function of average size has some hundred.
const MAX_POINTS: usize = 8_000;
/// Steps of the budget that one point takes.
const STEPS_OF_CUT: u64 = 32;

/// Where a path can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CutPoint {
    /// At an instruction.
    Instruction(InstructionId),
    /// Between a block and the block to which its last instruction jumps, or does not jump.
    Way(BlockId, EdgeKind),
}

/// The two nodes of each point: before it and after it.
type Nodes = BTreeMap<CutPoint, (NodeIndex, NodeIndex)>;

/// Why there is no cut.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "their messages say what they are")]
pub enum CutError {
    #[error("the indirect jump at {0:#x} could not be followed, so an exit may be missing")]
    Indirect(FileAddress),
    #[error("no return is reachable from the inner site")]
    NoReturn,
    #[error("the calls that pass the inner site end only where other calls end too, or in a loop")]
    NoCut,
    #[error("there are too many exits ({0})")]
    TooMany(usize),
}

/// Finds a minimum cut between the block `from` and the returns, by the weight of each point. All points must be in
/// blocks from which a return can be reached. Fails if the function does not return from there, or cannot be cut.
pub fn minimum_cut(
    code: &FunctionCode,
    weights: &BTreeMap<CutPoint, u64>,
    from: BlockId,
) -> Result<Vec<CutPoint>, CutError> {
    if weights.len() > MAX_POINTS || !code.budget.spend(STEPS_OF_CUT * weights.len() as u64) {
        code.budget.exhaust();
        return Err(CutError::NoCut);
    }
    let mut network = DiGraph::<(), u64>::new();
    let source = network.add_node(());
    let sink = network.add_node(());
    let mut nodes = Nodes::new();
    for (point, weight) in weights {
        let pair = (network.add_node(()), network.add_node(()));
        nodes.insert(*point, pair);
        network.add_edge(pair.0, pair.1, *weight);
        network.add_edge(pair.1, pair.0, INFINITE);
    }
    let mut leaves = false;
    for point in weights.keys() {
        for next in following(code, &nodes, *point) {
            connect(&mut network, &nodes, *point, next);
        }
        if is_return(code, *point) {
            leaves = true;
            network.add_edge(nodes[point].1, sink, INFINITE);
        }
    }
    if !leaves {
        return Err(CutError::NoReturn);
    }
    let Some((first, _)) = nodes.get(&CutPoint::Instruction(from.first())) else { return Err(CutError::NoReturn) };
    network.add_edge(source, *first, INFINITE);
    let (flow, flows) = dinics(&network, source, sink);
    if flow >= INFINITE {
        return Err(CutError::NoCut);
    }
    let beyond = can_reach_sink(&network, &flows, sink);
    Ok(nodes
        .into_iter()
        .filter(|(_, (before, after))| !beyond.contains(before) && beyond.contains(after))
        .map(|(point, _)| point)
        .collect())
}

/// Returns the points that can come next. If a way out of a block is not a point, that is the instruction it leads to.
fn following(code: &FunctionCode, nodes: &Nodes, point: CutPoint) -> Vec<CutPoint> {
    let (block, taken) = match point {
        CutPoint::Instruction(InstructionId { block, index }) => {
            if index + 1 < code.blocks[block].instructions.len() {
                return vec![CutPoint::Instruction(block.instruction(index + 1))];
            }
            (block, None)
        }
        CutPoint::Way(block, kind) => (block, Some(kind)),
    };
    let successors = code.blocks[block].successors.iter();
    let next = |(successor, kind): &(BlockId, EdgeKind)| match (taken, CutPoint::Way(block, *kind)) {
        (None, way) if nodes.contains_key(&way) => Some(way),
        (Some(taken), _) if taken != *kind => None,
        _ => Some(CutPoint::Instruction(successor.first())),
    };
    successors.filter_map(next).collect()
}

fn is_return(code: &FunctionCode, point: CutPoint) -> bool {
    let CutPoint::Instruction(InstructionId { block, index }) = point else { return false };
    let block = &code.blocks[block];
    block.leaves && index + 1 == block.instructions.len()
}

fn connect(network: &mut DiGraph<(), u64>, nodes: &Nodes, from: CutPoint, to: CutPoint) {
    if let (Some(from), Some(to)) = (nodes.get(&from), nodes.get(&to)) {
        network.add_edge(from.1, to.0, INFINITE);
        network.add_edge(to.0, from.1, INFINITE);
    }
}

/// Returns the nodes from which the sink can still be reached in the residual network.
fn can_reach_sink(network: &DiGraph<(), u64>, flows: &[u64], sink: NodeIndex) -> BTreeSet<NodeIndex> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use evictscope_model::FileAddress;
    use proptest::prelude::*;

    use super::{CutPoint, Nodes, following, is_return, minimum_cut};
    use crate::budget::Budget;
    use crate::code::graph::{Block, BlockId, EdgeKind, FunctionCode, PerBlock};
    use crate::isa::Architecture;

    /// Number of instructions, and the blocks that can come next: with none, the function returns.
    type Made = (usize, Vec<prop::sample::Index>);

    fn function(made: &[Made]) -> FunctionCode {
        let nop = Architecture::X86_64.decode(&[0x90], FileAddress::default());
        let nop = nop.unwrap_or_else(|| panic!("no instruction"));
        let ids: Vec<BlockId> = PerBlock::new(vec![(); made.len()]).ids().collect();
        let block = |(instructions, next): &Made| {
            let kinds = [EdgeKind::Taken, EdgeKind::FallThrough];
            let successors = next.iter().map(|next| *next.get(&ids));
            Block {
                instructions: vec![nop.clone(); *instructions],
                successors: successors.zip(kinds).collect(),
                predecessors: Vec::new(),
                leaves: next.is_empty(),
            }
        };
        FunctionCode {
            architecture: Architecture::X86_64,
            blocks: PerBlock::new(made.iter().map(block).collect()),
            callees: Default::default(),
            hooks: Default::default(),
            linked: Default::default(),
            unresolved_jumps: Vec::new(),
            budget: Budget::default(),
        }
    }

    /// Returns the points from which a return can be reached, with weights.
    fn weights(code: &FunctionCode, chosen: &[u64]) -> BTreeMap<CutPoint, u64> {
        let mut points = Vec::new();
        for (id, block) in code.blocks.entries() {
            let indices = 0..block.instructions.len();
            points.extend(indices.map(|index| CutPoint::Instruction(id.instruction(index))));
            let ways = block.successors.iter();
            points.extend(ways.map(|(_, kind)| CutPoint::Way(id, *kind)));
        }
        let all: Nodes = points.iter().map(|point| (*point, Default::default())).collect();
        let mut returning: Vec<CutPoint> = points.clone();
        returning.retain(|point| is_return(code, *point));
        for _ in 0..points.len() {
            let more = points.iter().filter(|point| {
                let mut next = following(code, &all, **point).into_iter();
                !returning.contains(point) && next.any(|next| returning.contains(&next))
            });
            let more: Vec<CutPoint> = more.copied().collect();
            returning.extend(more);
        }
        returning.into_iter().zip(chosen.iter().copied().cycle()).collect()
    }

    proptest! {
        /// Each path from the entry to a return passes one point of the cut, however it goes.
        #[test]
        fn no_path_crosses_it_twice(
            made in prop::collection::vec(
                (1..4_usize, prop::collection::vec(any::<prop::sample::Index>(), 0..=2)),
                1..14,
            ),
            chosen in prop::collection::vec(1..60_u64, 1..40),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 300),
        ) {
            let code = function(&made);
            let weights = weights(&code, &chosen);
            let Ok(cut) = minimum_cut(&code, &weights, BlockId::ENTRY) else { return Ok(()) };
            let all: Nodes = weights.keys().map(|point| (*point, Default::default())).collect();
            let mut turns = turns.iter();
            // Many paths, one after the other.
            while turns.next().is_some() {
                let mut point = CutPoint::Instruction(BlockId::ENTRY.first());
                let mut passed = 0;
                loop {
                    passed += usize::from(cut.contains(&point));
                    if is_return(&code, point) {
                        prop_assert_eq!(passed, 1, "{:?}", cut);
                        break;
                    }
                    let mut next = following(&code, &all, point);
                    next.retain(|next| weights.contains_key(next));
                    let next = match (next.as_slice(), turns.next()) {
                        ([only], _) => *only,
                        (_, Some(turn)) => *turn.get(&next),
                        (_, None) => break,
                    };
                    prop_assert!(passed <= 1, "{:?}", cut);
                    point = next;
                }
            }
        }
    }
}
