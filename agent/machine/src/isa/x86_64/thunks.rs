//! Thunks: pieces of code that compilers use instead of an indirect call, jump, or return, so that the CPU predicts
//! none (`-mindirect-branch=thunk`, `-mfunction-return=thunk`, retpolines).
//!
//! Each calls its own end, which replaces its return address, or drops it, and returns.

use evictscope_model::FileAddress;
use iced_x86::{Code, Instruction as Decoded, OpKind, Register};

use super::decode::decoded;
use super::operands::operand;
use crate::elf::image::Image;
use crate::ir::{Expression, Flow, Instruction};

/// Returns how control goes on after an instruction that goes through a thunk; `None` if it does not.
pub fn flow_behind(image: &Image<'_>, instruction: &Instruction) -> Option<Flow> {
    let (is_call, target) = match instruction.flow {
        Flow::Call(target) => (true, target),
        Flow::Jump(target) => (false, target),
        _ => return None,
    };
    match end_of_thunk(image, target)? {
        Expression::Unknown => (!is_call).then_some(Flow::Return),
        to if is_call => Some(Flow::IndirectCall(Box::new(to))),
        to => Some(Flow::IndirectJump(Box::new(to))),
    }
}

/// Returns the register that a thunk goes to, nothing that is known if it returns, or `None` if there is no thunk.
fn end_of_thunk(image: &Image<'_>, thunk: FileAddress) -> Option<Expression> {
    let call = image.instructions_at(thunk).next()?;
    let mut end = image.instructions_at(call.callee()?).map(|instruction| decoded(&instruction));
    let (places, returns): (Decoded, Decoded) = (end.next()?, end.next()?);
    if returns.code() != Code::Retnq || places.memory_base() != Register::RSP {
        return None;
    }
    match (places.code(), places.memory_displacement64()) {
        (Code::Mov_rm64_r64, 0) if places.op0_kind() == OpKind::Memory => Some(operand(&places, 1)),
        (Code::Lea_r64_m, 8) if places.op0_register() == Register::RSP => Some(Expression::Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::code::graph::FunctionCode;
    use crate::elf::image::Image;
    use crate::ir::{Expression, Flow};
    use evictscope_model::FileAddress;

    /// `call 1f; jmp 2f; 1: call 3f; 0: pause; jmp 0b; 3: mov %r11, (%rsp); ret; 2: call 4f; 0: pause; jmp 0b;
    /// 4: lea 8(%rsp), %rsp; ret`, the first two of which are the function.
    const CODE: [u8; 36] = [
        0xe8, 0x02, 0x00, 0x00, 0x00, 0xeb, 0x0e, 0xe8, 0x04, 0x00, 0x00, 0x00, 0xf3, 0x90, 0xeb, 0xfc, 0x4c, 0x89,
        0x1c, 0x24, 0xc3, 0xe8, 0x04, 0x00, 0x00, 0x00, 0xf3, 0x90, 0xeb, 0xfc, 0x48, 0x8d, 0x64, 0x24, 0x08, 0xc3,
    ];

    #[test]
    fn what_goes_through_a_thunk_is_what_it_stands_for() {
        let address = FileAddress::new(0x1000);
        let image = Image::of_code(&CODE, address);
        let code = FunctionCode::decode(&image, address).unwrap_or_else(|why| panic!("{why}"));
        let instructions = code.blocks.iter().flat_map(|block| &block.instructions);
        let seen: Vec<_> = instructions.map(|instruction| (instruction.address.get(), &instruction.flow)).collect();
        let call = Flow::IndirectCall(Box::new(Expression::Register { number: 11, width: 8 }));
        assert_eq!(seen, [(0x1000, &call), (0x1005, &Flow::Return)]);
    }
}
