//! The paths from one point of a function to its returns.

use std::collections::BTreeSet;

use iced_x86::{FlowControl, Instruction};

use super::execution::Execution;
use super::state::State;
use crate::code::graph::{BlockId, FunctionCode, InstructionId};

/// The most steps over all paths from one point. `getMaxmemoryState()` of Redis 8.6 takes over 2,000 if built by clang.
const MAX_STEPS: usize = 20_000;

/// Finds the first block that all paths to the returns pass and that no loop can follow. That is the entry, or a block
/// after the last loop.
pub fn behind_loops(code: &FunctionCode) -> Option<BlockId> {
    let looping: BTreeSet<BlockId> = code.loops().into_iter().flatten().collect();
    let leaving = code.blocks.ids().filter(|block| code.blocks[*block].leaves);
    let before_returns = code.passed_before(&leaving.collect::<Vec<_>>());
    let from_the_returns = before_returns.into_iter().rev();
    let free = from_the_returns.take_while(|block| code.reachable(*block, &[]).is_disjoint(&looping));
    free.last()
}

/// Returns what is known at each return that can be reached from `point`, where `state` holds, on every path that is
/// not known to be impossible. Returns `None` if there are too many paths, or one of them loops or leaves in another
/// way.
pub fn to_returns(execution: &mut Execution<'_>, state: State, point: InstructionId) -> Option<Vec<State>> {
    let ends = watch(execution, state, point, &(), |_, _, _, ()| {})?;
    Some(ends.into_iter().map(|(state, ())| state).collect())
}

/// Does the same, and shows `look` each instruction of a path before it is executed, with what is known there, to which
/// it may add. Its notes begin as `notes` on each path, and are returned with the path's end.
pub fn watch<N: Clone>(
    execution: &mut Execution<'_>,
    state: State,
    point: InstructionId,
    notes: &N,
    mut look: impl FnMut(&mut Execution<'_>, &mut State, &Instruction, &mut N),
) -> Option<Vec<(State, N)>> {
    let code = execution.code;
    let mut steps = 0;
    let mut returns = Vec::new();
    let mut pending = vec![(state, notes.clone(), point, Vec::new())];
    while let Some((mut state, mut notes, point, mut passed)) = pending.pop() {
        // What is known about a value holds only for one iteration of a loop.
        if passed.contains(&point.block) {
            return None;
        }
        passed.push(point.block);
        let here = &code.blocks[point.block];
        for instruction in here.instructions.get(point.index..)? {
            steps += 1;
            if steps > MAX_STEPS {
                return None;
            }
            look(execution, &mut state, instruction, &mut notes);
            if instruction.flow_control() == FlowControl::Return {
                returns.push((state.clone(), notes.clone()));
            }
            execution.step(&mut state, instruction);
        }
        let last = here.instructions.last()?;
        if here.leaves && last.flow_control() != FlowControl::Return {
            return None;
        }
        for (successor, kind) in &here.successors {
            if let Some(state) = execution.along_edge(&state, here, *kind) {
                pending.push((state, notes.clone(), successor.first(), passed.clone()));
            }
        }
    }
    (!returns.is_empty()).then_some(returns)
}
