//! Comparisons with `maxmemory` that the function makes before it evicts.

use crate::code::block::BlockId;
use crate::code::graph::EdgeKind;
use crate::elf::address::FileAddress;
use crate::flow::condition::{Condition, Relation};
use crate::flow::execution::Execution;
use crate::flow::flags::Flags;
use crate::flow::value::Value;

/// A comparison with `maxmemory`.
pub struct Comparison {
    pub value: Value,
    /// The load of `maxmemory` that it is compared with.
    pub maxmemory: Value,
    /// The edge that is taken where the value is above, and the block it leads to.
    pub over: Option<(EdgeKind, BlockId)>,
}

/// Returns the first comparison with `maxmemory` that tells what is above it, and its block.
pub fn first_comparison(
    execution: &mut Execution<'_>,
    maxmemory: FileAddress,
) -> Option<(BlockId, Comparison)> {
    blocks_before_eviction(execution)
        .into_iter()
        .find_map(|block| {
            let comparison = comparison_with(execution, block, maxmemory)?;
            comparison.over.map(|_| (block, comparison))
        })
}

/// Returns what a block's last instruction, a conditional jump, compares with the global at
/// `maxmemory`, and the edge it takes where that value is above it.
pub fn comparison_with(
    execution: &mut Execution<'_>,
    block: BlockId,
    maxmemory: FileAddress,
) -> Option<Comparison> {
    let code = execution.code;
    let last = code.blocks[block].instructions.last()?;
    if !last.is_jcc_short_or_near() {
        return None;
    }
    let states = execution.states_in(block);
    let Flags::Comparison {
        left,
        right,
        bits: 64,
    } = &states.last()?.flags
    else {
        return None;
    };
    let is_limit = |value: &Value| execution.atoms.as_global(value) == Some(maxmemory);
    let (value, limit) = match (is_limit(left), is_limit(right)) {
        (true, false) => (right.clone(), left.clone()),
        (false, true) => (left.clone(), right.clone()),
        _ => return None,
    };
    if value.as_constant().is_some() {
        return None;
    }
    let condition = states.last()?.flags.condition(last.condition_code())?;
    let is_over = |condition: &Condition| {
        condition.relation == Relation::Below && condition.left == limit && condition.right == value
    };
    let over_edge = if is_over(&condition) {
        Some(EdgeKind::Taken)
    } else if is_over(&condition.negated()) {
        Some(EdgeKind::FallThrough)
    } else {
        None
    };
    let over = over_edge.and_then(|edge| {
        let successors = &code.blocks[block].successors;
        let (target, _) = successors.iter().find(|(_, kind)| *kind == edge)?;
        Some((edge, *target))
    });
    Some(Comparison {
        value,
        maxmemory: limit,
        over,
    })
}

/// Returns the blocks outside of loops that no loop with a call precedes, in order of execution. A
/// loop without calls adds up the allocator's counters or the replicas' buffers; the loop that evicts
/// has calls.
pub fn blocks_before_eviction(execution: &Execution<'_>) -> Vec<BlockId> {
    let blocks = &execution.code.blocks;
    let mut loop_of = blocks.filled(None);
    let mut evicts = Vec::new();
    for (number, members) in execution.code.loops().into_iter().enumerate() {
        evicts.push(members.iter().any(|block| blocks[*block].calls()));
        for block in members {
            loop_of[block] = Some(number);
        }
    }
    let mut before = blocks.filled(false);
    for index in &execution.order {
        let own = loop_of[*index];
        let in_eviction = own.is_some_and(|number| evicts[number]);
        before[*index] = !in_eviction
            && blocks[*index].predecessors.iter().all(|predecessor| {
                before[*predecessor] || (own.is_some() && loop_of[*predecessor] == own)
            });
    }
    let order = execution.order.iter().copied();
    order
        .filter(|index| before[*index] && loop_of[*index].is_none())
        .collect()
}
