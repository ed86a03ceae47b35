//! The order in which the blocks of a function are executed, and the loops that this makes of them.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use iced_x86::InstructionInfoFactory;
use petgraph::visit::DfsPostOrder;

use super::loops::LoopEffects;
use crate::code::graph::{Block, BlockId, FunctionCode, PerBlock};

/// The order of a function's blocks.
pub struct Order {
    /// The blocks that can be reached, in reverse post-order.
    pub blocks: Vec<BlockId>,
    /// Where each block is in `blocks`; `usize::MAX` if it is not.
    position: PerBlock<usize>,
}

/// What is known about a loop before it is executed.
pub struct Loop {
    /// What it changes.
    pub effects: Rc<LoopEffects>,
    /// If it is also entered past its head: the blocks of all loops that can be reached from each other there, which
    /// count as one.
    pub component: Option<BTreeSet<BlockId>>,
}

impl Order {
    /// Orders the blocks of a function.
    pub fn of(code: &FunctionCode) -> Self {
        let graph = code.graph();
        let mut blocks = Vec::new();
        if let Some(entry) = graph.node_indices().next() {
            let mut walk = DfsPostOrder::new(&graph, entry);
            while let Some(node) = walk.next(&graph) {
                blocks.push(BlockId::of(node));
            }
        }
        blocks.reverse();
        let mut position = code.blocks.filled(usize::MAX);
        for (index, block) in blocks.iter().enumerate() {
            position[*block] = index;
        }
        Self { blocks, position }
    }

    /// Returns whether a block has been executed when `last` has.
    pub fn is_executed(&self, block: BlockId, last: BlockId) -> bool {
        self.position[block] <= self.position[last]
    }

    /// Returns whether control goes back to the block `to` from `from`, as from the end of a loop.
    pub fn is_back(&self, from: BlockId, to: BlockId) -> bool {
        let at = self.position[from];
        at >= self.position[to] && at != usize::MAX
    }

    /// Returns whether control goes back to `block`, whose id is `id`, from one that follows it.
    pub fn is_loop_head(&self, block: &Block, id: BlockId) -> bool {
        let mut before = block.predecessors.iter();
        before.any(|from| self.is_back(*from, id))
    }

    /// Finds the loops by their heads. A loop is all blocks from which control comes back to its head without passing
    /// it.
    pub fn loops(&self, code: &FunctionCode, info: &mut InstructionInfoFactory) -> HashMap<BlockId, Loop> {
        let components = code.loops();
        let mut loops = HashMap::new();
        for head in self.blocks.iter().copied() {
            let mut ends = code.blocks[head].predecessors.clone();
            ends.retain(|from| self.is_back(*from, head));
            if ends.is_empty() {
                continue;
            }
            let mut blocks = code.leading_to(ends, &[head]);
            blocks.insert(head);
            let mut component = None;
            if head != BlockId::ENTRY && blocks.contains(&BlockId::ENTRY) {
                let all = components.iter().find(|own| own.contains(&head));
                blocks = all.into_iter().flatten().copied().collect();
                component = Some(blocks.clone());
            }
            let mut effects = LoopEffects::default();
            for block in blocks {
                let instructions = &code.blocks[block].instructions;
                code.budget.spend(instructions.len() as u64);
                for instruction in instructions {
                    effects.add(instruction, info);
                }
            }
            let effects = Rc::new(effects);
            loops.insert(head, Loop { effects, component });
        }
        loops
    }
}
