//! The paths from one point of a function to its returns.

use iced_x86::FlowControl;

use super::code::EdgeKind;
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
    let mut pending = vec![(state, point)];
    while let Some((mut state, (block, first))) = pending.pop() {
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
        let condition = last
            .is_jcc_short_or_near()
            .then(|| state.flags.condition(last.condition_code()))
            .flatten();
        let holds = condition.and_then(|condition| execution.decide(&condition));
        for (successor, kind) in &here.successors {
            let impossible = match kind {
                EdgeKind::Taken => holds == Some(false),
                EdgeKind::FallThrough => holds == Some(true),
                EdgeKind::Switch => false,
            };
            if !impossible {
                pending.push((state.clone(), (*successor, 0)));
            }
        }
    }
    (!returns.is_empty()).then_some(returns)
}
