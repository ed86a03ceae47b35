//! Which calls of a function are meant, by the blocks that they pass.

use std::collections::BTreeSet;

use crate::code::block::BlockId;
use crate::code::graph::{EdgeKind, FunctionCode};
use crate::elf::address::FileAddress;

/// The calls whose exits are looked for: those that reach a block.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// The block that they reach.
    pub block: BlockId,
    /// Edges that other calls do not take; those must pass no exit. Empty if there are no others.
    pub by: &'a [(BlockId, EdgeKind)],
    /// The inner site. Two probes at one instruction have no order, so no other probe is there.
    pub inner: Option<FileAddress>,
    /// Whether a call can end there by leaving its conditional jump one way: its own probe ends it.
    pub ends_at_inner: bool,
    /// Instructions after which they end, if their work is not a loop.
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
