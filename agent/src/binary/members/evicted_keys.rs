//! `stat_evictedkeys` by data flow: the one member of `server` that the evicting path adds 1 to.

use super::only;
use crate::binary::code::FunctionCode;

/// The one 8-byte member of `server` that the blocks add 1 to: `stat_evictedkeys`.
pub fn incremented_member(
    code: &FunctionCode,
    blocks: impl IntoIterator<Item = usize>,
    server: std::ops::Range<u64>,
) -> Option<u64> {
    use iced_x86::{Mnemonic, OpKind, Register};
    let found: Vec<u64> = blocks
        .into_iter()
        .filter_map(|index| code.blocks.get(index))
        .flat_map(|block| &block.instructions)
        .filter(|instruction| {
            let adds_one = match instruction.mnemonic() {
                Mnemonic::Inc => true,
                Mnemonic::Add => instruction.try_immediate(1).is_ok_and(|by| by == 1),
                Mnemonic::Sub => instruction.try_immediate(1).is_ok_and(|by| by == u64::MAX),
                _ => false,
            };
            adds_one
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::RIP
                && instruction.memory_size().size() == 8
        })
        .map(iced_x86::Instruction::memory_displacement64)
        .filter(|address| server.contains(address))
        .collect();
    only(found)
}
