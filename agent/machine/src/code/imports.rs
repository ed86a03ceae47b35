//! What a call calls, by name: in this file, or in a shared library through a slot that the loader
//! fills.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instruction::target;
use crate::elf::address::FileAddress;
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
            let own = image.function_name(function);
            own.or_else(|| image.import(slot_of_stub(image, function)?))
        }
        FlowControl::IndirectCall => image.import(slot(call)?),
        _ => None,
    }
}

/// Returns whether an instruction calls something that changes neither registers nor the function's
/// memory.
pub fn is_hook(image: &Image<'_>, instruction: &Instruction) -> bool {
    callee_name(image, instruction).is_some_and(|name| HOOKS.contains(&name))
}

/// Returns the slot that the code at an address jumps through: `endbr64; jmp *slot(%rip)`.
fn slot_of_stub(image: &Image<'_>, address: FileAddress) -> Option<FileAddress> {
    let bytes = image.bytes_at(address).filter(|_| image.is_code(address))?;
    image.budget.spend(STUB_LENGTH as u64);
    let decoder = Decoder::with_ip(64, bytes, address.get(), DecoderOptions::NONE);
    let mut instructions = decoder.into_iter().take(STUB_LENGTH);
    let jump = instructions.find(|own| own.mnemonic() != Mnemonic::Endbr64)?;
    let is_jump = jump.flow_control() == FlowControl::IndirectBranch;
    slot(&jump).filter(|_| is_jump)
}

/// Returns the slot that a call or jump goes through.
fn slot(instruction: &Instruction) -> Option<FileAddress> {
    let is_slot =
        instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RIP;
    is_slot.then(|| FileAddress::new(instruction.memory_displacement64()))
}
