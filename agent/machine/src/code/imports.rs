//! What a call calls, by name: in this file, or in a shared library through a slot that the loader fills.
//!
//! Thunks: pieces of code that compilers use instead of an indirect call, jump, or return, so that the CPU predicts
//! none (`-mindirect-branch=thunk`, `-mfunction-return=thunk`, retpolines).
//!
//! Each calls its own end, which replaces its return address, or drops it, and returns.

use evictscope_model::FileAddress;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instruction::target;
use crate::elf::image::Image;

/// What functions call at their entry for a profiler (gcc's `-pg`). It saves every register.
const HOOKS: [&str; 3] = ["mcount", "_mcount", "__fentry__"];
/// The most instructions that the linker puts between a call and its slot.
const STUB_LENGTH: usize = 2;

/// Returns the name of the function that an instruction calls, if it calls one that has a name.
pub fn callee_name<'data>(image: &Image<'data>, call: &Instruction) -> Option<&'data str> {
    match call.flow_control() {
        FlowControl::Call => {
            let function = target(call);
            image.symbols.function_name(function).or_else(|| image.import(slot_of_stub(image, function)?))
        }
        FlowControl::IndirectCall => image.import(slot(call)?),
        _ => None,
    }
}

/// Returns whether an instruction calls something that changes neither registers nor the function's memory.
pub fn is_hook(image: &Image<'_>, instruction: &Instruction) -> bool {
    callee_name(image, instruction).is_some_and(|name| HOOKS.contains(&name))
}

/// Returns the slot that the code at an address jumps through: `endbr64; jmp *slot(%rip)`.
fn slot_of_stub(image: &Image<'_>, address: FileAddress) -> Option<FileAddress> {
    let bytes = image.bytes_at(address).filter(|_| image.is_code(address))?;
    image.budget.spend(STUB_LENGTH as u64);
    let decoder = Decoder::with_ip(64, bytes, address.get(), DecoderOptions::NONE);
    let jump = decoder.into_iter().take(STUB_LENGTH).find(|instruction| instruction.mnemonic() != Mnemonic::Endbr64)?;
    let is_jump = jump.flow_control() == FlowControl::IndirectBranch;
    slot(&jump).filter(|_| is_jump)
}

/// Returns the slot that a call or jump goes through.
fn slot(instruction: &Instruction) -> Option<FileAddress> {
    let is_slot = instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RIP;
    is_slot.then(|| FileAddress::new(instruction.memory_displacement64()))
}

/// Their names.
const FUNCTIONS: [&str; 3] = ["abort", "exit", "__stack_chk_fail"];

/// The prefix of the functions that report the address sanitizer's findings; those that end with [`GOES_ON`] return.
const REPORTS: &str = "__asan_report_";
const GOES_ON: &str = "_noabort";

/// Returns whether a function of this name does not return.
pub fn is_named(name: &str) -> bool {
    let is_report = name.starts_with(REPORTS) && !name.ends_with(GOES_ON);
    is_report || FUNCTIONS.contains(&name)
}

/// Replaces an instruction that goes through a thunk with the one that it stands for.
pub fn replaced(image: &Image<'_>, mut instruction: Instruction) -> Instruction {
    let is_call = match instruction.flow_control() {
        FlowControl::Call => true,
        FlowControl::UnconditionalBranch => false,
        _ => return instruction,
    };
    match (end_of_thunk(image, target(&instruction)), is_call) {
        (Some(Register::None), false) => instruction.set_code(Code::Retnq),
        (Some(register), _) if register != Register::None => {
            instruction.set_code(if is_call { Code::Call_rm64 } else { Code::Jmp_rm64 });
            instruction.set_op0_kind(OpKind::Register);
            instruction.set_op0_register(register);
        }
        _ => {}
    }
    instruction
}

/// Returns the register that a thunk goes to, [`Register::None`] if it returns, or `None` if there is no thunk.
fn end_of_thunk(image: &Image<'_>, thunk: FileAddress) -> Option<Register> {
    let [call, _] = instructions(image, thunk)?;
    if call.code() != Code::Call_rel32_64 {
        return None;
    }
    let [places, returns] = instructions(image, target(&call))?;
    if returns.code() != Code::Retnq || places.memory_base() != Register::RSP {
        return None;
    }
    match (places.code(), places.memory_displacement64()) {
        (Code::Mov_rm64_r64, 0) if places.op0_kind() == OpKind::Memory => Some(places.op1_register()),
        (Code::Lea_r64_m, 8) if places.op0_register() == Register::RSP => Some(Register::None),
        _ => None,
    }
}

fn instructions(image: &Image<'_>, at: FileAddress) -> Option<[Instruction; 2]> {
    let bytes = image.bytes_at(at).filter(|_| image.is_code(at))?;
    let mut decoder = Decoder::with_ip(64, bytes, at.get(), DecoderOptions::NONE);
    Some([decoder.decode(), decoder.decode()])
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;
    use iced_x86::{Code, Register};

    use crate::code::graph::FunctionCode;
    use crate::elf::image::Image;

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
        let seen: Vec<_> = instructions
            .map(|instruction| (instruction.ip(), instruction.code(), instruction.op0_register()))
            .collect();
        let expected = [(0x1000, Code::Call_rm64, Register::R11), (0x1005, Code::Retnq, Register::None)];
        assert_eq!(seen, expected);
    }
}
