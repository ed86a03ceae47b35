//! Comparisons with `maxmemory` that the function makes before it evicts.

use evictscope_machine::code::instruction::is_conditional_jump;
use evictscope_machine::code::{BlockId, EdgeKind};
use evictscope_machine::elf::FileAddress;
use evictscope_machine::flow::{Atoms, Condition, Execution, Relation, Value, blocks_that_access};

/// The edge that is taken if a value is above the limit, and the block it leads to.
pub type Over = (EdgeKind, BlockId);

/// A comparison with `maxmemory`.
pub struct Comparison {
    pub value: Value,
    /// The load of `maxmemory` that it is compared with.
    pub maxmemory: Value,
    /// Where the value is above; `None` if the comparison only says where it is not.
    pub over: Option<Over>,
}

/// Returns the first comparison with `maxmemory` that tells what is above it: its block, and where it leads.
pub fn first_comparison(
    execution: &mut Execution<'_>,
    maxmemory: FileAddress,
) -> Option<(BlockId, Over)> {
    blocks_before_eviction(execution, None)
        .into_iter()
        .find_map(|block| {
            let comparisons = comparisons_with(execution, block, maxmemory);
            let over = comparisons.into_iter().find_map(|own| own.over)?;
            Some((block, over))
        })
}

/// Returns what the conditional jump at the end of a block tells about values in relation to the
/// global at `maxmemory`, first what is above it. The jump can depend on several earlier
/// comparisons, here or on the only way to one of its edges.
pub fn comparisons_with(
    execution: &mut Execution<'_>,
    block: BlockId,
    maxmemory: FileAddress,
) -> Vec<Comparison> {
    let code = execution.code;
    let last = code.blocks[block].instructions.last();
    let Some(known) = execution.state_at(block).map(|state| state.facts.clone()) else {
        return Vec::new();
    };
    if !last.is_some_and(is_conditional_jump) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (target, edge) in &code.blocks[block].successors {
        let Some(state) = execution.state_along(block, *edge) else {
            continue;
        };
        for fact in state.facts.iter().filter(|fact| !known.contains(fact)) {
            let over = (*edge, *target);
            found.extend(comparison_in(&execution.atoms, fact, over, maxmemory));
        }
    }
    found.sort_by_key(|own| own.over.is_none());
    found
}

/// Returns what a condition says about a value in relation to the global at `maxmemory`; the condition holds after `edge`.
fn comparison_in(
    atoms: &Atoms,
    condition: &Condition,
    edge: Over,
    maxmemory: FileAddress,
) -> Option<Comparison> {
    let is_limit = |value: &Value| atoms.as_global(value) == Some(maxmemory);
    let (left, right) = (&condition.left, &condition.right);
    let (value, limit) = match (is_limit(left), is_limit(right)) {
        (true, false) => (right, left),
        (false, true) => (left, right),
        _ => return None,
    };
    let is_over = condition.relation == Relation::Below && limit == left;
    let is_comparison = condition.bits == 64 && value.as_constant().is_none();
    is_comparison.then(|| Comparison {
        value: value.clone(),
        maxmemory: limit.clone(),
        over: is_over.then_some(edge),
    })
}

/// Returns the blocks outside of loops that no loop that may evict precedes, in order of execution. The loop that evicts has
/// calls, and the function looks at the global `policy` in it or before. A loop without calls adds up the allocator's counters or
/// the replicas' buffers; a loop before any look at the policy lets paused clients go on.
pub fn blocks_before_eviction(
    execution: &mut Execution<'_>,
    policy: Option<FileAddress>,
) -> Vec<BlockId> {
    let code = execution.code;
    let blocks = &code.blocks;
    let looks = policy.map(|policy| blocks_that_access(execution, policy));
    let looks = looks.unwrap_or_default();
    let mut loop_of = blocks.filled(None);
    let mut evicts = Vec::new();
    for (number, members) in code.loops().into_iter().enumerate() {
        let is_behind_look = || {
            let leading = code.leading_to(members.clone(), &[]);
            looks.iter().any(|look| leading.contains(look))
        };
        let calls = members.iter().any(|block| blocks[*block].calls());
        evicts.push(calls && (looks.is_empty() || is_behind_look()));
        for block in members {
            loop_of[block] = Some(number);
        }
    }
    let mut before = blocks.filled(false);
    for index in &execution.order.blocks {
        let own = loop_of[*index];
        let in_eviction = own.is_some_and(|number| evicts[number]);
        before[*index] = !in_eviction
            && blocks[*index].predecessors.iter().all(|predecessor| {
                before[*predecessor] || (own.is_some() && loop_of[*predecessor] == own)
            });
    }
    let order = execution.order.blocks.iter().copied();
    order
        .filter(|index| before[*index] && loop_of[*index].is_none())
        .collect()
}
