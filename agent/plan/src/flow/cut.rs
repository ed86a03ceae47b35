//! A minimum cut: the cheapest points of a function that every path to its returns passes.
//!
//! Points are the vertices of a network whose edges follow the flow of control. Of several cuts that
//! cost the same, the one nearest to the returns is taken. Edges against the flow of control make it
//! cost something when a path crosses the cut twice: a probe's second hit counts nothing, but has its
//! price.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef as _;

use crate::code::block::{BlockId, InstructionId};
use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;

/// Weight of a point that must not be in a cut.
pub const INFINITE: u64 = 1 << 40;
/// Weight of crossing the cut a second time; less than that of one more site.
const SECOND_HIT_WEIGHT: u64 = 12;
/// Most points between which a cut is looked for; an eviction function has some hundred.
const MAX_POINTS: usize = 8_000;
/// Steps of the budget that one point takes.
const STEPS_OF_CUT: u64 = 32;

/// Why there is no cut.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CutError {
    /// A `switch` could not be followed.
    #[error("the indirect jump at {0:#x} could not be followed, so some way out may be missing")]
    Indirect(FileAddress),
    /// No return is reachable.
    #[error("no return is reachable from the inner site")]
    NoReturn,
    /// Every cut goes through a loop or through the function's last instruction.
    #[error("no set of instructions separates the inner site from the function's exits")]
    NoCut,
}

/// Finds a minimum cut between the block `from` and the returns, by the weight of each point. Fails
/// where the function does not return from there, or cannot be cut.
pub fn minimum_cut(
    code: &FunctionCode,
    weights: &BTreeMap<InstructionId, u64>,
    from: BlockId,
) -> Result<Vec<InstructionId>, CutError> {
    if weights.len() > MAX_POINTS || !code.budget.spend(STEPS_OF_CUT * weights.len() as u64) {
        code.budget.exhaust();
        return Err(CutError::NoCut);
    }
    let mut network = DiGraph::<(), u64>::new();
    let source = network.add_node(());
    let sink = network.add_node(());
    let mut nodes: BTreeMap<InstructionId, (NodeIndex, NodeIndex)> = BTreeMap::new();
    for (point, weight) in weights {
        let pair = (network.add_node(()), network.add_node(()));
        nodes.insert(*point, pair);
        network.add_edge(pair.0, pair.1, *weight);
        network.add_edge(pair.1, pair.0, INFINITE);
    }
    let mut leaves = false;
    for point in weights.keys() {
        let block = &code.blocks[point.block];
        if point.index + 1 < block.instructions.len() {
            let next = point.block.instruction(point.index + 1);
            connect(&mut network, &nodes, *point, next);
            continue;
        }
        for (successor, _) in &block.successors {
            connect(&mut network, &nodes, *point, successor.first());
        }
        if block.leaves {
            leaves = true;
            network.add_edge(nodes[point].1, sink, INFINITE);
        }
    }
    if !leaves {
        return Err(CutError::NoReturn);
    }
    network.add_edge(source, nodes[&from.first()].0, INFINITE);
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

fn connect(
    network: &mut DiGraph<(), u64>,
    nodes: &BTreeMap<InstructionId, (NodeIndex, NodeIndex)>,
    from: InstructionId,
    to: InstructionId,
) {
    if let (Some(from), Some(to)) = (nodes.get(&from), nodes.get(&to)) {
        network.add_edge(from.1, to.0, INFINITE);
        network.add_edge(to.0, from.1, SECOND_HIT_WEIGHT);
    }
}

/// Returns the nodes from which the sink can still be reached in the residual network.
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
