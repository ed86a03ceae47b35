//! Which calls of a function are meant, by the blocks that they pass.

use std::collections::BTreeSet;

use crate::code::block::BlockId;
use crate::code::graph::{EdgeKind, FunctionCode};
use crate::elf::address::FileAddress;

/// The calls whose exits are looked for: those that come to a block.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// The block that they come to.
    pub block: BlockId,
    /// Edges of which other calls take none: those are to pass no exit. Empty where there are no others.
    pub by: &'a [(BlockId, EdgeKind)],
    /// The inner site. Two probes at one instruction have no order, so no other probe is there.
    pub inner: Option<FileAddress>,
    /// Whether calls can end there that leave its conditional jump one way: its own probe ends them.
    pub ends_at_inner: bool,
    /// Instructions behind which they end, where their work is no loop.
    pub work: &'a [FileAddress],
}

impl Calls<'_> {
    /// All calls of the function.
    pub const ALL: Self = Self {
        block: BlockId::ENTRY,
        by: &[],
        inner: None,
        ends_at_inner: false,
        work: &[],
    };

    /// Returns the blocks that they pass and from which the function can return.
    pub fn passed_blocks(self, code: &FunctionCode) -> BTreeSet<BlockId> {
        let returning = code.returning(&[]);
        let mut passed = code.reachable(self.block, &[]);
        passed.retain(|block| returning.contains(block));
        passed
    }
}
