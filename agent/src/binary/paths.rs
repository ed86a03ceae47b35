//! The paths from one point of a function to its returns.

use iced_x86::FlowControl;

use super::execute::Execution;
use super::state::State;

/// Most steps over all paths from one point.
const MAX_STEPS: usize = 2_000;

/// An instruction: its block and its index there.
pub type Point = (usize, usize);

/// What is known at each return that can be reached from `point`, where `state` holds, on every path
/// that is not known to be impossible; `None` where there are too many, or one loops, or one leaves
/// in another way.
pub fn to_returns(execution: &mut Execution<'_>, state: State, point: Point) -> Option<Vec<State>> {
    let code = execution.code;
    let mut steps = 0;
    let mut returns = Vec::new();
    let mut pending = vec![(state, point, Vec::new())];
    while let Some((mut state, (block, first), mut passed)) = pending.pop() {
        // What is known of a value holds for one time round a loop only.
        if passed.contains(&block) {
            return None;
        }
        passed.push(block);
        let here = code.blocks.get(block)?;
        for instruction in here.instructions.get(first..)? {
            steps += 1;
            if steps > MAX_STEPS {
                return None;
            }
            if instruction.flow_control() == FlowControl::Return {
                returns.push(state.clone());
            }
            execution.step(&mut state, instruction);
        }
        let last = here.instructions.last()?;
        if here.leaves && last.flow_control() != FlowControl::Return {
            return None;
        }
        for (successor, kind) in &here.successors {
            if let Some(state) = execution.along_edge(&state, here, *kind) {
                pending.push((state, (*successor, 0), passed.clone()));
            }
        }
    }
    (!returns.is_empty()).then_some(returns)
}
