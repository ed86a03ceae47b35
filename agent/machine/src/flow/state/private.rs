//! The stack slots that only their own name reaches, if an array of any length moves the stack pointer.
//!
//! Such an array is below all that the frame pointer names. What is below all addresses that the function computes from
//! the frame pointer is part of no object that others can reach: the compiler's own slots, and variables.

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpKind, Register};

use crate::code::graph::{BlockId, FunctionCode};
use crate::code::instruction::{Instruction, writes};

/// Where the frame pointer points, as an offset from the stack pointer at entry.
const FRAME: i64 = -8;

/// Returns the offset from the stack pointer at entry below which slots are private; [`i64::MIN`] if none is known to
/// be.
pub fn below(code: &FunctionCode) -> i64 {
    let moved = |instruction: &Instruction| {
        instruction.op0_register() == Register::RSP
            && instruction.op1_kind() == OpKind::Register
            && (instruction.mnemonic() == Mnemonic::Sub
                || instruction.mnemonic() == Mnemonic::Mov && instruction.op1_register() != Register::RBP)
    };
    let instructions = || code.blocks.iter().flat_map(|block| &block.instructions);
    if !code.unresolved_jumps.is_empty() || !instructions().any(moved) {
        return i64::MIN;
    }
    let mut begin = code.blocks[BlockId::ENTRY].instructions.iter();
    let mut begin = begin.by_ref().filter(|instruction| instruction.mnemonic() != Mnemonic::Endbr64);
    let saves = begin.next().is_some_and(is_save);
    if !saves || !begin.next().is_some_and(is_begin) {
        return i64::MIN;
    }
    let mut info = InstructionInfoFactory::new();
    let lowest = instructions()
        .map(|instruction| taken(instruction, &mut info))
        .try_fold(0, |lowest, taken| Some(lowest.min(taken?)));
    lowest.unwrap_or(i64::MIN)
}

fn is_save(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Push && instruction.op0_register() == Register::RBP
}

fn is_begin(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && (instruction.op0_register(), instruction.op1_register()) == (Register::RBP, Register::RSP)
}

/// Returns the lowest offset whose address an instruction computes from the frame pointer, 0 if it computes none;
/// `None` if that is not known.
fn taken(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Option<i64> {
    let restores = instruction.mnemonic() == Mnemonic::Pop && instruction.op0_register() == Register::RBP
        || instruction.mnemonic() == Mnemonic::Leave;
    let to_rsp = instruction.op0_register() == Register::RSP;
    if is_save(instruction) || is_begin(instruction) || restores || instruction.flow_control() == FlowControl::Return {
        return Some(0);
    }
    if instruction.mnemonic() == Mnemonic::Lea && instruction.memory_base() == Register::RBP {
        let displacement = instruction.memory_displacement64().cast_signed();
        let is_plain = instruction.memory_index() == Register::None;
        return if to_rsp { Some(0) } else { displacement.checked_add(FRAME).filter(|_| is_plain) };
    }
    let is_frame = |register: Register| register.full_register() == Register::RBP;
    let info = info.info(instruction);
    let stores_element = info.used_memory().iter().any(|memory| {
        let is_element = is_frame(memory.base()) && memory.index() != Register::None;
        writes(memory.access()) && (is_element || is_frame(memory.index()))
    });
    let operands = (0..instruction.op_count())
        .any(|operand| instruction.op_kind(operand) == OpKind::Register && is_frame(instruction.op_register(operand)));
    let changes = info.used_registers().iter().any(|used| is_frame(used.register()) && writes(used.access()));
    (!stores_element && !changes && (!operands || to_rsp)).then_some(0)
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
