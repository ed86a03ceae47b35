//! The stack slots that only their own name reaches, if an array of any length moves the stack pointer.
//!
//! Such an array is below all that the frame pointer names. What is below all addresses that the function computes from
//! the frame pointer is part of no object that others can reach: the compiler's own slots, and variables.

use crate::code::graph::{BlockId, FunctionCode};
use crate::ir::{Effect, Expression, Instruction, Operation, bit};
use crate::isa::Convention;

/// Returns the offset from the stack pointer at entry below which slots are private; [`i64::MIN`] if none is known to
/// be.
pub fn below(code: &FunctionCode) -> i64 {
    let frame = Frame::of(code.architecture.convention());
    let instructions = || code.blocks.iter().flat_map(|block| &block.instructions);
    let mut effects = instructions().flat_map(Instruction::effects);
    if !code.unresolved_jumps.is_empty() || !effects.any(|effect| frame.is_moved(effect)) {
        return i64::MIN;
    }
    let begin = code.blocks[BlockId::ENTRY].instructions.iter();
    let mut begin = begin.filter(|instruction| !instruction.does_nothing());
    let mut begins = |as_expected: fn(&Frame, &Instruction) -> bool| {
        begin.next().is_some_and(|instruction| as_expected(&frame, instruction))
    };
    if !begins(Frame::is_saved) || !begins(Frame::is_begun) {
        return i64::MIN;
    }
    let lowest = instructions()
        .map(|instruction| frame.taken(instruction))
        .try_fold(0, |lowest, taken| Some(lowest.min(taken?)));
    lowest.unwrap_or(i64::MIN)
}

/// The two registers that name stack slots, as expressions.
struct Frame {
    convention: &'static Convention,
    stack_pointer: Expression,
    pointer: Expression,
}

impl Frame {
    fn of(convention: &'static Convention) -> Self {
        let whole = |number| Expression::Register { number, width: 8 };
        let (stack_pointer, pointer) = (whole(convention.stack_pointer), whole(convention.frame_pointer));
        Self { convention, stack_pointer, pointer }
    }

    /// Returns whether an effect moves the stack pointer by as much as a register says.
    fn is_moved(&self, effect: &Effect) -> bool {
        let is_other = |value: &Expression| matches!(value, Expression::Register { .. }) && *value != self.pointer;
        let Effect::Set { register, value, .. } = effect else { return false };
        let is_moved = match value {
            Expression::Computed(Operation::Subtract, of) => of.get(1).is_some_and(is_other),
            value => is_other(value),
        };
        is_moved && *register == self.convention.stack_pointer
    }

    fn is_saved(&self, instruction: &Instruction) -> bool {
        matches!(instruction.effects(), [Effect::Push(value)] if *value == self.pointer)
    }

    fn is_begun(&self, instruction: &Instruction) -> bool {
        matches!(instruction.effects(), [Effect::Set { value, .. }] if *value == self.stack_pointer)
            && self.is_changed(instruction)
    }

    fn is_changed(&self, instruction: &Instruction) -> bool {
        instruction.effects().iter().any(|effect| effect.writes() & bit(self.convention.frame_pointer) != 0)
    }

    /// Returns whether an instruction gives the frame pointer what was saved, and moves the stack pointer.
    fn is_restored(&self, instruction: &Instruction) -> bool {
        let Some((Effect::Let { value: Expression::Load { address, .. }, .. }, others)) =
            instruction.effects().split_first()
        else {
            return false;
        };
        let is_moved = others.iter().any(|effect| effect.writes() == bit(self.convention.stack_pointer));
        address.base.is_some_and(|base| self.convention.is_frame(base)) && is_moved && self.is_changed(instruction)
    }

    /// Returns the lowest offset whose address an instruction computes from the frame pointer, 0 if it computes none;
    /// `None` if that is not known.
    fn taken(&self, instruction: &Instruction) -> Option<i64> {
        if self.is_saved(instruction) || self.is_begun(instruction) || self.is_restored(instruction) {
            return Some(0);
        }
        if self.is_changed(instruction) {
            return None;
        }
        instruction
            .effects()
            .iter()
            .map(|effect| self.taken_by(effect))
            .try_fold(0, |lowest, taken| Some(lowest.min(taken?)))
    }

    fn taken_by(&self, effect: &Effect) -> Option<i64> {
        let frame = self.convention.frame_pointer;
        // What stores to an element may store anywhere.
        let stored = effect.stored();
        if stored.is_some_and(|address| address.index.is_some() && address.registers() & bit(frame) != 0) {
            return None;
        }
        let to_stack_pointer = effect.writes() == bit(self.convention.stack_pointer);
        if to_stack_pointer || matches!(effect, Effect::Compare { .. }) {
            return Some(0);
        }
        let mut lowest = Some(0);
        let mut take = |taken: Option<i64>| lowest = lowest.zip(taken).map(|(lowest, taken)| lowest.min(taken));
        for expression in effect.expressions() {
            expression.visit(&mut |part| match part {
                Expression::Address(address) if address.base == Some(frame) => {
                    let offset = address.displacement.cast_signed().checked_add(self.convention.frame);
                    take(offset.filter(|_| address.index.is_none()));
                }
                Expression::Register { number, .. } if *number == frame => take(None),
                _ => {}
            });
        }
        if let Effect::Clobber(clobber) = effect
            && clobber.from & bit(frame) != 0
        {
            take(None);
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;

    use super::below;
    use crate::code::graph::FunctionCode;
    use crate::elf::image::Image;
    use crate::flow::joins::execution::Execution;

    /// `push %rbp; mov %rsp, %rbp; sub $0x40, %rsp; movl $5, -0x30(%rbp); lea -0x20(%rbp), %rdi`
    const BEGIN: [u8; 19] = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0xc7, 0x45, 0xd0, 0x05, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x7d,
        0xe0,
    ];
    /// `1: sub %rdx, %rsp; mov %rsp, %rdi; call *%rcx; dec %ebx; jnz 1b; mov -0x30(%rbp), %eax; leave; ret`
    const ARRAYS: [u8; 17] =
        [0x48, 0x29, 0xd4, 0x48, 0x89, 0xe7, 0xff, 0xd1, 0xff, 0xcb, 0x75, 0xf4, 0x8b, 0x45, 0xd0, 0xc9, 0xc3];

    /// Returns below which offset slots are private in this function with `code` in it, and what the slot at
    /// -0x30(%rbp) is known to hold at the end.
    fn found(code: &[u8]) -> (i64, Option<u64>) {
        let bytes = [&BEGIN, code, &ARRAYS].concat();
        let address = FileAddress::new(0x1000);
        let image = Image::of_code(&bytes, address);
        let code = FunctionCode::decode(&image, address).unwrap_or_else(|why| panic!("{why}"));
        let mut execution = Execution::run(&code);
        let (last, _) =
            (code.blocks.entries()).find(|(_, block)| block.leaves).unwrap_or_else(|| panic!("it does not return"));
        let end = execution.states_in(last).pop().unwrap_or_else(|| panic!("it is not reached"));
        (below(&code), end.registers[0].as_constant())
    }

    #[test]
    fn what_is_below_every_address_that_is_taken_outlasts_arrays() {
        assert_eq!(found(&[]), (-0x28, Some(5)));
        // `lea -0x38(%rbp), %rsi`
        assert_eq!(found(&[0x48, 0x8d, 0x75, 0xc8]), (-0x40, None));
        // `mov %rbp, %rdi`
        assert_eq!(found(&[0x48, 0x89, 0xef]), (i64::MIN, None));
        // `mov %rdi, -0x10(%rbp,%rax,8)`
        let element = [0x48, 0x89, 0x7c, 0xc5, 0xf0];
        assert_eq!(found(&element), (i64::MIN, None));
    }
}
