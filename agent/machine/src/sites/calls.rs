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
    /// The inner site, which is no exit: two probes at one instruction have no order.
    pub inner: Option<FileAddress>,
    /// Instructions behind which they end, where their work is no loop.
    pub work: &'a [FileAddress],
}

impl Calls<'_> {
    /// All calls of the function.
    pub const ALL: Self = Self {
        block: BlockId::ENTRY,
        by: &[],
        inner: None,
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
