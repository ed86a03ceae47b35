//! The stack slots that only their own name reaches, if an array of any length moves the stack pointer.
//!
//! Such an array is below all that the frame pointer names. What is below all addresses that the function computes from
//! the frame pointer is part of no object that others can reach: the compiler's own slots, and variables.

use crate::code::graph::{BlockId, FunctionCode};
use crate::ir::{AccessKind, Effect, Expression, Instruction, Operation, RegisterSet, bit};
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
    let Some(Frame { begin, at }) = Frame::begun(code, convention) else { return i64::MIN };
    // Before it begins, the register is the caller's.
    let entry = code.blocks[BlockId::ENTRY].instructions.iter().skip(begin + 1);
    let others = code.blocks.entries().filter(|(id, _)| *id != BlockId::ENTRY);
    let all = entry.chain(others.flat_map(|(_, block)| &block.instructions));
    let effects = all.filter(|instruction| !is_restored(instruction, convention)).flat_map(Instruction::effects);
    let lowest = effects.map(|effect| taken_by(effect, convention)).try_fold(0, |lowest, taken| {
        let taken = taken?.map_or(Some(0), |taken| taken.checked_add(at))?;
        Some(lowest.min(taken))
    });
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

/// Where the frame pointer begins to point into the function's frame.
struct Frame {
    /// The place, in the first block, of the instruction that makes it do so.
    begin: usize,
    /// As an offset from the stack pointer at entry.
    at: i64,
}

impl Frame {
    /// Finds it at the beginning of a function.
    fn begun(code: &FunctionCode, convention: &Convention) -> Option<Self> {
        let mut top = 0_i64;
        for (begin, instruction) in code.blocks[BlockId::ENTRY].instructions.iter().enumerate() {
            for effect in instruction.effects() {
                let Effect::Set { register, value, width: 8 } = effect else {
                    if effect.writes() & bit(convention.stack_pointer) != 0 {
                        return None;
                    }
                    top -= i64::from(matches!(effect, Effect::Push(_))) * 8;
                    continue;
                };
                let to = || {
                    let to = value.as_address().filter(|to| to.registers() == bit(convention.stack_pointer));
                    to?.displacement.cast_signed().checked_add(top)
                };
                match register {
                    _ if *register == convention.stack_pointer => top = to()?,
                    _ if *register == convention.frame_pointer => return Some(Self { begin, at: to()? }),
                    _ => {}
                }
            }
            if instruction.is_call() {
                return None;
            }
        }
        None
    }
}

/// Returns whether an instruction takes the frame pointer from the stack, and at most other registers with it.
fn is_restored(instruction: &Instruction, convention: &Convention) -> bool {
    let frame = bit(convention.frame_pointer);
    let is_taken = |effect: &Effect| match effect {
        Effect::Let { value: Expression::Load { address, .. }, .. }
        | Effect::Set { value: Expression::Load { address, .. }, .. } => {
            address.index.is_none() && address.base.is_some_and(|base| convention.is_frame(base))
        }
        Effect::Set { register, value, .. } => {
            *register == convention.stack_pointer || matches!(value, Expression::Temporary(_))
        }
        _ => false,
    };
    let mut writes = instruction.effects().iter().map(Effect::writes);
    writes.any(|writes| writes & frame != 0) && instruction.effects().iter().all(is_taken)
}

/// Returns the lowest displacement from the frame pointer whose address an effect takes, `Some(None)` if it takes none;
/// `None` if that is not known.
fn taken_by(effect: &Effect, convention: &Convention) -> Option<Option<i64>> {
    let frame = bit(convention.frame_pointer);
    let is_clobbered = matches!(effect, Effect::Clobber(all) if all.from & frame != 0);
    let is_element_written = effect.accesses().iter().any(|access| {
        let address = &access.address;
        access.kind == AccessKind::Written && address.registers() & frame != 0 && address.index.is_some()
    });
    if effect.writes() & frame != 0 || is_clobbered || is_element_written {
        return None;
    }
    // What is only compared goes nowhere.
    let is_compared = matches!(effect, Effect::Compare { .. } | Effect::CompareIf { .. });
    if is_compared || effect.writes() == bit(convention.stack_pointer) {
        return Some(None);
    }
    let mut lowest = None;
    for expression in effect.expressions() {
        lowest = [lowest, taken(expression, frame)?].into_iter().flatten().min();
    }
    Some(lowest)
}

fn taken(expression: &Expression, frame: RegisterSet) -> Option<Option<i64>> {
    let is_alone = matches!(expression, Expression::Register { .. });
    if let Some(address) = expression.as_address().filter(|_| !is_alone) {
        let is_taken = address.registers() & frame != 0;
        return (!is_taken || address.index.is_none()).then(|| is_taken.then_some(address.displacement.cast_signed()));
    }
    (expression.carries() & frame == 0).then_some(None)
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;

    use super::below;
    use crate::code::graph::FunctionCode;
    use crate::elf::image::Image;
    use crate::flow::joins::execution::Execution;
    use crate::isa::Architecture;

    /// `push %rbp; mov %rsp, %rbp; sub $0x40, %rsp; movl $5, -0x30(%rbp); lea -0x20(%rbp), %rdi`
    const BEGIN: [u8; 19] = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0xc7, 0x45, 0xd0, 0x05, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x7d,
        0xe0,
    ];
    /// `1: sub %rdx, %rsp; mov %rsp, %rdi; call *%rcx; dec %ebx; jnz 1b; mov -0x30(%rbp), %eax; leave; ret`
    const ARRAYS: [u8; 17] =
        [0x48, 0x29, 0xd4, 0x48, 0x89, 0xe7, 0xff, 0xd1, 0xff, 0xcb, 0x75, 0xf4, 0x8b, 0x45, 0xd0, 0xc9, 0xc3];

    /// For aarch64: `stp x29, x30, [sp, #-64]!; mov x29, sp; mov x8, #5; str x8, [sp, #24]; add x0, x29, #32`
    const ARM_BEGIN: [u32; 5] = [0xa9bc_7bfd, 0x9100_03fd, 0xd280_00a8, 0xf900_0fe8, 0x9100_83a0];
    /// `1: sub sp, sp, x2; mov x0, sp; blr x3; cbnz w4, 1b; ldr x0, [x29, #24]; mov sp, x29; ldp x29, x30, [sp], #64;
    /// ret`
    const ARM_ARRAYS: [u32; 8] =
        [0xcb22_63ff, 0x9100_03e0, 0xd63f_0060, 0x35ff_ffa4, 0xf940_0fa0, 0x9100_03bf, 0xa8c4_7bfd, 0xd65f_03c0];

    /// Returns below which offset slots are private in this function with `code` in it, and what its slot is known to
    /// hold at the end.
    fn found(code: &[u8]) -> (i64, Option<u64>) {
        found_in(&[&BEGIN, code, &ARRAYS].concat(), Architecture::X86_64)
    }

    fn found_in(bytes: &[u8], architecture: Architecture) -> (i64, Option<u64>) {
        let address = FileAddress::new(0x1000);
        let mut image = Image::of_code(bytes, address);
        image.architecture = architecture;
        let code = FunctionCode::decode(&image, address).unwrap_or_else(|why| panic!("{why}"));
        let mut execution = Execution::run(&code);
        let (last, _) =
            (code.blocks.entries()).find(|(_, block)| block.leaves).unwrap_or_else(|| panic!("it does not return"));
        let end = execution.states_in(last).pop().unwrap_or_else(|| panic!("it is not reached"));
        (below(&code), end.registers[0].as_constant())
    }

    #[test]
    fn a_frame_can_be_above_its_pointer() {
        let found = |words: &[u32]| {
            let words = [&ARM_BEGIN, words, &ARM_ARRAYS].concat();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            found_in(&bytes, Architecture::Aarch64)
        };
        assert_eq!(found(&[]), (-32, Some(5)));
        // `add x1, x29, #16`
        assert_eq!(found(&[0x9100_43a1]), (-48, None));
        // `mov x1, x29`; `str x1, [x29, x2, lsl #3]`
        for taken in [0xaa1d_03e1, 0xf822_7ba1] {
            assert_eq!(found(&[taken]), (i64::MIN, None));
        }
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
