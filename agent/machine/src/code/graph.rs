//! The control-flow graph of one function: basic blocks and the ways between them.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Deref, Index, IndexMut};
use std::rc::Rc;

use evictscope_model::FileAddress;
use petgraph::algo::dominators::simple_fast;
use petgraph::algo::{dominators, kosaraju_scc};
use petgraph::graph::{DiGraph, NodeIndex};

use crate::budget::Budget;
use crate::ir::{Flow, Instruction, RegisterSet};
use crate::isa::Architecture;

/// How control passes from one block to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// By a jump, taken.
    Taken,
    /// To the instruction that follows.
    FallThrough,
    /// Through a `switch` table.
    Switch,
}

/// A basic block: control enters it only at its first instruction and leaves it only at its last.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Its instructions, at least one.
    pub instructions: Vec<Instruction>,
    /// The blocks that control can pass to.
    pub successors: Vec<(BlockId, EdgeKind)>,
    /// The blocks that control can come from.
    pub predecessors: Vec<BlockId>,
    /// Whether the function can end here (`ret`, or a tail call).
    pub leaves: bool,
}

impl Block {
    /// Returns whether it calls anything.
    pub fn calls(&self) -> bool {
        self.instructions.iter().any(Instruction::is_call)
    }

    /// Returns the function that it leaves to by a jump.
    pub fn tail_callee(&self) -> Option<FileAddress> {
        match self.instructions.last()?.flow {
            Flow::Jump(target) if self.leaves => Some(target),
            _ => None,
        }
    }

    /// Returns the address of the first instruction.
    pub fn address(&self) -> FileAddress {
        self.instructions.first().map(|first| first.address).unwrap_or_default()
    }
}

/// What a function does with registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callee {
    /// The registers that it reads before it writes them.
    pub reads: RegisterSet,
    /// The registers that it, or what it calls, writes.
    pub writes: RegisterSet,
}

impl Callee {
    /// A function about which nothing is known.
    pub const UNKNOWN: Self = Self { reads: RegisterSet::MAX, writes: RegisterSet::MAX };
}

/// A decoded function.
#[derive(Debug)]
pub struct FunctionCode {
    /// The instruction set.
    pub architecture: Architecture,
    /// The blocks; the first is the entry.
    pub blocks: PerBlock<Block>,
    /// What the functions that it calls do with registers, as far as known. Any other may take an argument in each
    /// register and change all that the ABI lets it change.
    pub callees: HashMap<FileAddress, Callee>,
    /// Addresses of the calls added for a profiler, which change nothing.
    pub hooks: BTreeSet<FileAddress>,
    /// The addresses in the file's slots that the process cannot change.
    pub linked: Rc<HashMap<FileAddress, FileAddress>>,
    /// Addresses of the indirect jumps that could not be followed.
    pub unresolved_jumps: Vec<FileAddress>,
    /// What the analysis of the file may take.
    pub budget: Budget,
}

impl FunctionCode {
    /// Returns the instructions of a block without the calls added for a profiler.
    pub fn without_hooks<'a>(&'a self, block: &'a Block) -> impl Iterator<Item = &'a Instruction> {
        block.instructions.iter().filter(|instruction| !self.hooks.contains(&instruction.address))
    }

    /// Returns the blocks as nodes, in their order, and the ways between them as edges.
    pub fn graph(&self) -> DiGraph<(), ()> {
        self.budget.spend(self.blocks.len() as u64);
        let mut graph = DiGraph::new();
        for _ in self.blocks.iter() {
            graph.add_node(());
        }
        for (id, block) in self.blocks.entries() {
            for (successor, _) in &block.successors {
                graph.add_edge(id.node(), successor.node(), ());
            }
        }
        graph
    }

    /// Returns the blocks that every path to each block passes.
    pub fn dominators(&self) -> Dominators {
        Dominators(simple_fast(&self.graph(), BlockId::ENTRY.node()))
    }

    /// Returns the blocks that every path from the entry to any of `places` passes.
    pub fn passed_before(&self, places: &[BlockId]) -> Vec<BlockId> {
        let dominators = self.dominators();
        let mut common: Option<Vec<BlockId>> = None;
        for chain in places.iter().filter_map(|place| dominators.of(*place)) {
            let mut chain: Vec<BlockId> = chain.collect();
            if !self.budget.spend(1 + chain.len() as u64 / 4) {
                break;
            }
            chain.reverse();
            if let Some(common) = &common {
                let agreed = chain.iter().zip(common).take_while(|(block, other)| block == other).count();
                chain.truncate(agreed);
            }
            common = Some(chain);
        }
        common.unwrap_or_default()
    }

    /// Returns the blocks reachable from `from`, without passing an edge in `except`.
    pub fn reachable(&self, from: BlockId, except: &[(BlockId, EdgeKind)]) -> BTreeSet<BlockId> {
        let mut seen = BTreeSet::from([from]);
        let mut pending = vec![from];
        while let Some(block) = pending.pop() {
            if !self.budget.spend(2) {
                break;
            }
            for (successor, kind) in &self.blocks[block].successors {
                if !except.contains(&(block, *kind)) && seen.insert(*successor) {
                    pending.push(*successor);
                }
            }
        }
        seen
    }

    /// Returns the blocks from which the function can return without passing one of `except`.
    pub fn returning(&self, except: &[BlockId]) -> BTreeSet<BlockId> {
        let leaving = self.blocks.ids().filter(|block| self.blocks[*block].leaves);
        self.leading_to(leaving.collect(), except)
    }

    /// Returns the blocks from which control can reach one of `ends` without passing one of `except`.
    pub fn leading_to(&self, ends: Vec<BlockId>, except: &[BlockId]) -> BTreeSet<BlockId> {
        let mut pending = ends;
        pending.retain(|block| !except.contains(block));
        let mut seen: BTreeSet<BlockId> = pending.iter().copied().collect();
        while let Some(block) = pending.pop() {
            if !self.budget.spend(2) {
                break;
            }
            let before = self.blocks[block].predecessors.iter();
            pending.extend(before.filter(|block| !except.contains(block) && seen.insert(**block)));
        }
        seen
    }

    /// Returns the loops: the sets of blocks in which each block can be reached from every other.
    pub fn loops(&self) -> Vec<Vec<BlockId>> {
        let graph = self.graph();
        let is_loop = |nodes: &Vec<NodeIndex>| nodes.len() > 1 || graph.contains_edge(nodes[0], nodes[0]);
        let loops = kosaraju_scc(&graph).into_iter().filter(is_loop);
        loops.map(|nodes| nodes.into_iter().map(BlockId::of).collect()).collect()
    }
}

/// The blocks that every path from the entry to a block passes.
pub struct Dominators(dominators::Dominators<NodeIndex>);

impl Dominators {
    /// Returns the blocks that every path to `block` passes, from itself back to the entry; `None` if no path leads
    /// there.
    pub fn of(&self, block: BlockId) -> Option<impl Iterator<Item = BlockId>> {
        Some(self.0.dominators(block.node())?.map(BlockId::of))
    }
}

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

#[expect(missing_docs, reason = "their names and types say what they return")]
impl BlockId {
    /// The block at a function's entry.
    pub const ENTRY: Self = Self(0);

    pub fn of(node: NodeIndex) -> Self {
        Self::at(node.index())
    }

    pub fn node(self) -> NodeIndex {
        NodeIndex::new(self.index())
    }

    pub fn first(self) -> InstructionId {
        self.instruction(0)
    }

    pub fn instruction(self, index: usize) -> InstructionId {
        InstructionId { block: self, index }
    }

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

#[expect(missing_docs, reason = "their names and types say what they return")]
impl<T> PerBlock<T> {
    /// Takes the blocks' values, in their order.
    pub fn new(values: Vec<T>) -> Self {
        Self(values)
    }

    pub fn ids(&self) -> impl Iterator<Item = BlockId> + use<T> {
        (0..self.0.len()).map(BlockId::at)
    }

    pub fn entries(&self) -> impl Iterator<Item = (BlockId, &T)> {
        self.ids().zip(&self.0)
    }

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
