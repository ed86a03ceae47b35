//! The addresses that instructions mention, and where in code such instructions may be.

use evictscope_model::FileAddress;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction as Decoded, OpKind};

use super::decode::{decoded, made};
use crate::ir::Instruction;

/// Shows `look` the address of each four bytes that may mention a target, until it returns `false`: read as a distance
/// from the byte after them, and also as an address if the executable is linked to a fixed address.
pub fn candidates(
    (address, code): (FileAddress, &[u8]),
    is_fixed: bool,
    is_target: impl Fn(u32) -> bool,
    mut look: impl FnMut(FileAddress) -> bool,
) {
    let mut behind = (address.get() as u32).wrapping_add(4);
    for (at, word) in (address.get()..).zip(code.windows(4)) {
        let word = word.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let is_candidate = is_target(word.wrapping_add(behind)) || (is_fixed && is_target(word));
        behind = behind.wrapping_add(1);
        if is_candidate && !look(FileAddress::new(at)) {
            return;
        }
    }
}

/// Returns whether these bytes are a nop of any length, or `int3`.
pub fn is_padding(bytes: &[u8]) -> bool {
    let prefixes = bytes.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    matches!(bytes[prefixes..], [0x90 | 0xcc] | [0x0f, 0x1f, ..])
}

/// Decodes instructions one after the other, without those that are not valid.
pub fn decode_all(bytes: &[u8], address: FileAddress) -> impl Iterator<Item = Instruction> + use<'_> {
    let decoder = Decoder::with_ip(64, bytes, address.get(), DecoderOptions::NONE);
    decoder.into_iter().filter(|decoded| !decoded.is_invalid()).map(move |decoded| {
        let at = FileAddress::new(decoded.ip()).wrapping_sub(address) as usize;
        made(&decoded, bytes.get(at..at + decoded.len()).unwrap_or_default())
    })
}

/// Returns the addresses that the first instruction mentions that ends past `at`.
pub fn mentioned_at(bytes: &[u8], begin: FileAddress, at: FileAddress) -> Vec<FileAddress> {
    let mut decoder = Decoder::with_ip(64, bytes, begin.get(), DecoderOptions::NONE);
    let found = decoder.iter().find(|decoded| decoded.next_ip() > at.get());
    found.map_or_else(Vec::new, |found| mentioned_in(&found))
}

/// Returns the addresses that an instruction mentions: as memory, as a number, or as its target.
pub fn mentioned(instruction: &Instruction) -> Vec<FileAddress> {
    mentioned_in(&decoded(instruction))
}

fn mentioned_in(decoded: &Decoded) -> Vec<FileAddress> {
    let operands = 0..decoded.op_count();
    let has_memory = operands.clone().any(|operand| decoded.op_kind(operand) == OpKind::Memory);
    let memory = has_memory.then(|| decoded.memory_displacement64());
    let jumps = matches!(decoded.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
    let jumped_to = jumps.then(|| decoded.near_branch_target());
    let numbers = operands.filter_map(|operand| decoded.try_immediate(operand).ok());
    memory.into_iter().chain(jumped_to).chain(numbers).map(FileAddress::new).collect()
}
