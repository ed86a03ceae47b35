//! Names for the blocks of a graph and for its instructions.

use std::ops::{Deref, Index, IndexMut};

use petgraph::graph::NodeIndex;

/// A block of a control-flow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(u32);

/// An instruction of a control-flow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstructionId {
    /// Its block.
    pub block: BlockId,
    /// Its place in the block, from 0.
    pub index: usize,
}

impl BlockId {
    /// The block at a function's entry.
    pub const ENTRY: Self = Self(0);

    /// Returns the block that a node of the graph stands for.
    pub fn of(node: NodeIndex) -> Self {
        Self::at(node.index())
    }

    /// Returns its node in the graph.
    pub fn node(self) -> NodeIndex {
        NodeIndex::new(self.index())
    }

    /// Returns its first instruction.
    pub fn first(self) -> InstructionId {
        self.instruction(0)
    }

    /// Returns one of its instructions.
    pub fn instruction(self, index: usize) -> InstructionId {
        InstructionId { block: self, index }
    }

    /// Returns the block at an index in the function.
    pub(super) fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Something for each block of one function.
#[derive(Clone, Debug)]
pub struct PerBlock<T>(Vec<T>);

impl<T> PerBlock<T> {
    /// Takes the blocks' values, in their order.
    pub fn new(values: Vec<T>) -> Self {
        Self(values)
    }

    /// Returns the blocks.
    pub fn ids(&self) -> impl Iterator<Item = BlockId> + use<T> {
        (0..self.0.len()).map(BlockId::at)
    }

    /// Returns the blocks with their values.
    pub fn entries(&self) -> impl Iterator<Item = (BlockId, &T)> {
        self.ids().zip(&self.0)
    }

    /// Makes a copy of `value` for each block.
    pub fn filled<U: Clone>(&self, value: U) -> PerBlock<U> {
        PerBlock(vec![value; self.0.len()])
    }
}

impl<T> Deref for PerBlock<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> Index<BlockId> for PerBlock<T> {
    type Output = T;

    fn index(&self, block: BlockId) -> &T {
        &self.0[block.index()]
    }
}

impl<T> IndexMut<BlockId> for PerBlock<T> {
    fn index_mut(&mut self, block: BlockId) -> &mut T {
        &mut self.0[block.index()]
    }
}
