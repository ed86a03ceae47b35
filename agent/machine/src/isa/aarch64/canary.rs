//! The stack protector's check at the end of a function.
//!
//! A static build does not keep the name of `__stack_chk_fail()`, so gcc's check itself is recognised, and the path to
//! that call is left out of the graph: it compares a word of the stack with a global, and clears the register that held
//! the latter, so that no one can find it there.

use fARM64::{Code, Operand};

use super::decode::decoded;
use super::operands::general;
use super::tables::SP;
use crate::ir::{Effect, Expression, Flow, Instruction, Relation, Test, bit};

/// How many instructions before the comparison both sides are loaded.
const LOAD_DISTANCE: usize = 6;

/// Returns whether a branch is taken if the canary is intact; `None` if it does not depend on that. `before` has the
/// instructions before the branch, the nearest first.
pub fn intact_way<'a>(branch: &Instruction, mut before: impl Iterator<Item = &'a Instruction>) -> Option<bool> {
    let is_taken = match branch.flow {
        Flow::Branch(Test::Compared(Relation::Equal), _) => true,
        Flow::Branch(Test::Compared(Relation::NotEqual), _) => false,
        _ => return None,
    };
    let [Effect::Set { register: cleared, value: Expression::Constant(0), width: 8 }] = before.next()?.effects() else {
        return None;
    };
    let comparison = decoded(before.next()?);
    if comparison.code() != Code::SubsShifted64 {
        return None;
    }
    let sides = [5, 16].map(|at| (comparison.word() >> at & 31) as u8);
    let before: Vec<&Instruction> = before.take(LOAD_DISTANCE).collect();
    let is_from_stack = |side: u8| {
        let writers =
            before.iter().find(|writer| writer.effects().iter().any(|effect| effect.writes() & bit(side) != 0));
        writers.map(|writer| decoded(writer).op(1)).map(|from| match from {
            Operand::MemImm { base, .. } => matches!(general(base), Some(SP | 29)),
            _ => false,
        })
    };
    let [left, right] = sides.map(is_from_stack);
    let is_check = left? != right? && sides.contains(cleared);
    is_check.then_some(is_taken)
}
