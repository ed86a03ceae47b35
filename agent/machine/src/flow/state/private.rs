//! The stack slots that only their own name reaches, if an array of any length moves the stack pointer.
//!
//! Such an array is below all that the frame pointer names. What is below all addresses that the function computes from
//! the frame pointer is part of no object that others can reach: the compiler's own slots, and variables.

use crate::code::graph::{BlockId, FunctionCode};
use crate::ir::{AccessKind, Effect, Expression, Instruction, Operation, bit};
use crate::isa::Convention;

/// Returns the offset from the stack pointer at entry below which slots are private; [`i64::MIN`] if none is known to
/// be.
pub fn below(code: &FunctionCode) -> i64 {
    let convention = code.architecture.convention();
    let instructions = || code.blocks.iter().flat_map(|block| &block.instructions);
    let mut effects = instructions().flat_map(Instruction::effects);
    if !code.unresolved_jumps.is_empty() || !effects.any(|effect| is_moved(effect, convention)) {
        return i64::MIN;
    }
    let begin = code.blocks[BlockId::ENTRY].instructions.iter();
    let mut begin = begin.filter(|instruction| !instruction.does_nothing());
    let saves = begin.next().is_some_and(|first| is_saved(first, convention));
    if !saves || !begin.next().is_some_and(|second| is_begun(second, convention)) {
        return i64::MIN;
    }
    let lowest = instructions()
        .map(|instruction| taken(instruction, convention))
        .try_fold(0, |lowest, taken| Some(lowest.min(taken?)));
    lowest.unwrap_or(i64::MIN)
}

/// Returns whether an effect moves the stack pointer by what a register holds, or to where it points.
fn is_moved(effect: &Effect, convention: &Convention) -> bool {
    let Effect::Set { register, value, .. } = effect else { return false };
    let by = match value {
        Expression::Computed(Operation::Subtract, of) => of.last(),
        value => Some(value),
    };
    let is_moved = |by| matches!(by, &Expression::Register { number, .. } if number != convention.frame_pointer);
    *register == convention.stack_pointer && by.is_some_and(is_moved)
}

fn is_saved(instruction: &Instruction, convention: &Convention) -> bool {
    matches!(instruction.effects(), &[Effect::Push(Expression::Register { number, .. })]
        if number == convention.frame_pointer)
}

fn is_begun(instruction: &Instruction, convention: &Convention) -> bool {
    matches!(instruction.effects(), &[Effect::Set { register, value: Expression::Register { number, .. }, .. }]
        if (register, number) == (convention.frame_pointer, convention.stack_pointer))
}

/// Returns whether an instruction takes the frame pointer from the stack.
fn is_restored(instruction: &Instruction, convention: &Convention) -> bool {
    let [Effect::Let { value: Expression::Load { address, .. }, .. }, moved, set] = instruction.effects() else {
        return false;
    };
    address.base.is_some_and(|base| convention.is_frame(base))
        && [moved.writes(), set.writes()] == [convention.stack_pointer, convention.frame_pointer].map(bit)
}

/// Returns the lowest offset whose address an instruction computes from the frame pointer, 0 if it computes none;
/// `None` if that is not known.
fn taken(instruction: &Instruction, convention: &Convention) -> Option<i64> {
    let is_meant = [is_saved, is_begun, is_restored].iter().any(|is_meant| is_meant(instruction, convention));
    let effects = instruction.effects().iter().filter(|_| !is_meant);
    effects.map(|effect| taken_by(effect, convention)).try_fold(0, |lowest, taken| Some(lowest.min(taken?)))
}

fn taken_by(effect: &Effect, convention: &Convention) -> Option<i64> {
    let frame = bit(convention.frame_pointer);
    let to_stack_pointer = effect.writes() == bit(convention.stack_pointer);
    let mut is_taken = effect.writes() & frame != 0 || matches!(effect, Effect::Clobber(all) if all.from & frame != 0);
    let mut lowest = 0;
    for access in effect.accesses().iter().filter(|access| access.address.registers() & frame != 0) {
        let is_element = access.address.index.is_some();
        match access.kind {
            AccessKind::Read => {}
            AccessKind::Written => is_taken |= is_element,
            AccessKind::Named if to_stack_pointer => {}
            AccessKind::Named if is_element => is_taken = true,
            AccessKind::Named => lowest = access.address.displacement.cast_signed().checked_add(convention.frame)?,
        }
    }
    // What is only compared goes nowhere.
    let is_compared = matches!(effect, Effect::Compare { .. } | Effect::CompareIf { .. });
    for expression in effect.expressions().filter(|_| !to_stack_pointer && !is_compared) {
        expression.visit(&mut |part| {
            is_taken |= matches!(part, Expression::Register { number, .. } if *number == convention.frame_pointer);
        });
    }
    (!is_taken).then_some(lowest.min(0))
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
