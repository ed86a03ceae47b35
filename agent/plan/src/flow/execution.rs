//! Symbolic execution: what every register holds at every instruction of a function.
//!
//! One pass over the blocks in reverse post-order. Where paths meet, values that differ are merged. At
//! the head of a loop, what the loop changes is forgotten. A branch that is decided by what is known is
//! not taken the other way.

use std::collections::HashMap;
use std::rc::Rc;

use iced_x86::{Instruction, InstructionInfoFactory};
use petgraph::visit::DfsPostOrder;

use super::atoms::Atoms;
use super::condition::{self, Condition, Relation};
use super::loops::LoopEffects;
use super::operands::Step;
use super::state::State;
use super::step::CallEffects;
use super::value::Value;
use crate::code::block::{BlockId, PerBlock};
use crate::code::graph::{Block, EdgeKind, FunctionCode};
use crate::elf::address::FileAddress;

/// Budget for executing one instruction, in steps.
const STEPS_OF_ONE: u64 = 2;
/// Most bytes that the states in one block may take.
const MAX_STATES_BYTES: usize = 32 << 20;

/// A function with the state at the beginning of each of its blocks.
pub struct Execution<'a> {
    /// The function.
    pub code: &'a FunctionCode,
    /// Every atom that occurs in the states.
    pub atoms: Atoms,
    /// The blocks in reverse post-order.
    pub order: Vec<BlockId>,
    entry_states: PerBlock<Option<State>>,
    effects: HashMap<BlockId, Rc<LoopEffects>>,
    known_calls: HashMap<FileAddress, CallEffects>,
    without: Option<(BlockId, EdgeKind)>,
    info: InstructionInfoFactory,
}

impl<'a> Execution<'a> {
    /// Executes `code` from its entry.
    pub fn run(code: &'a FunctionCode) -> Self {
        let mut atoms = Atoms::new(code.budget.clone());
        let entry = State::at_entry(&mut atoms);
        Self::run_from(code, entry, atoms, None)
    }

    /// Executes `code` from its entry, where `entry` holds. The edge `without` is never taken.
    pub fn run_from(
        code: &'a FunctionCode,
        entry: State,
        atoms: Atoms,
        without: Option<(BlockId, EdgeKind)>,
    ) -> Self {
        let mut execution = Self {
            code,
            atoms,
            order: reverse_post_order(code),
            entry_states: code.blocks.filled(None),
            effects: HashMap::new(),
            known_calls: HashMap::new(),
            without,
            info: InstructionInfoFactory::new(),
        };
        execution.find_effects();
        execution.execute(&entry);
        execution
    }

    /// Executes the function once more with what is now known of its calls.
    pub fn again(&mut self, known_calls: HashMap<FileAddress, CallEffects>) {
        self.known_calls = known_calls;
        let entry = State::at_entry(&mut self.atoms);
        self.execute(&entry);
    }

    fn execute(&mut self, entry: &State) {
        let order = self.order.clone();
        let mut position = self.code.blocks.filled(usize::MAX);
        for (index, block) in order.iter().enumerate() {
            position[*block] = index;
        }
        for index in order {
            let state = self.merge_into(index, &position, entry);
            let bytes = state.as_ref().map_or(0, State::bytes);
            if !self.code.budget.keep(bytes) {
                return;
            }
            self.entry_states[index] = state;
        }
    }

    fn merge_into(
        &mut self,
        index: BlockId,
        position: &PerBlock<usize>,
        entry: &State,
    ) -> Option<State> {
        let block = &self.code.blocks[index];
        let mut incoming = Vec::new();
        let mut is_head = false;
        if index == BlockId::ENTRY {
            incoming.push(entry.clone());
        }
        let mut predecessors = block.predecessors.clone();
        predecessors.sort_unstable();
        predecessors.dedup();
        for predecessor in predecessors {
            if position[predecessor] >= position[index] {
                is_head |= position[predecessor] != usize::MAX;
                continue;
            }
            incoming.extend(self.edges_between(predecessor, index));
        }
        let mut state = State::merge(incoming, block.address(), &mut self.atoms)?;
        if is_head && let Some(effects) = self.effects.get(&index).cloned() {
            state.enter_loop(&effects, block.address(), &mut self.atoms);
        }
        Some(state)
    }

    fn find_effects(&mut self) {
        for blocks in self.code.loops() {
            let mut effects = LoopEffects::default();
            for instruction in blocks
                .iter()
                .flat_map(|block| &self.code.blocks[*block].instructions)
            {
                effects.add(instruction, &mut self.info);
            }
            let effects = Rc::new(effects);
            self.effects
                .extend(blocks.into_iter().map(|block| (block, effects.clone())));
        }
    }

    fn edges_between(&mut self, from: BlockId, to: BlockId) -> Vec<State> {
        let block = &self.code.blocks[from];
        let kinds: Vec<EdgeKind> = block
            .successors
            .iter()
            .filter(|(successor, _)| *successor == to)
            .map(|(_, kind)| *kind)
            .collect();
        let Some(end) = self.state_at_end(from) else {
            return Vec::new();
        };
        kinds
            .into_iter()
            .filter_map(|kind| {
                (self.without != Some((from, kind)))
                    .then(|| self.along_edge(&end, block, kind))
                    .flatten()
            })
            .collect()
    }

    /// Returns what is known behind an edge out of `block`, at whose end `end` holds; `None` where that
    /// rules the edge out.
    pub fn along_edge(&mut self, end: &State, block: &Block, kind: EdgeKind) -> Option<State> {
        self.code.budget.scan(end.bytes());
        let mut state = end.clone();
        let last = block.instructions.last()?;
        if last.is_jcc_short_or_near()
            && let Some(condition) = end.flags.condition(last.condition_code())
        {
            let condition = match kind {
                EdgeKind::FallThrough => condition.negated(),
                _ => condition,
            };
            let condition = self.atoms.without_truth(condition);
            if self.decide(&end.facts, &condition) == Some(false) {
                return None;
            }
            let is_whole = condition.bits == 64
                || self.atoms.zero_extended(&condition.left, condition.bits) == condition.left;
            state.assume(condition, is_whole);
        }
        Some(state)
    }

    /// Returns whether a condition holds, if `facts` decide it, or that no address on the stack is 0.
    fn decide(&mut self, facts: &[Condition], condition: &Condition) -> Option<bool> {
        let null_check = condition.right == Value::constant(0)
            && condition.bits == 64
            && condition.left.as_constant().is_none()
            && self.atoms.stack_offset(&condition.left).is_some();
        match condition.relation {
            Relation::Equal if null_check => Some(false),
            Relation::NotEqual if null_check => Some(true),
            _ => condition::decide(facts, condition),
        }
    }

    /// Returns the state before the first instruction of a block; `None` where it cannot be reached.
    pub fn state_at(&self, block: BlockId) -> Option<&State> {
        self.entry_states[block].as_ref()
    }

    /// Returns the states before each instruction of a block, and the one after the last.
    pub fn states_in(&mut self, block: BlockId) -> Vec<State> {
        let Some(mut state) = self.state_at(block).cloned() else {
            return Vec::new();
        };
        let mut states = Vec::new();
        let mut bytes = 0;
        for instruction in &self.code.blocks[block].instructions {
            bytes += state.bytes();
            self.code.budget.scan(state.bytes());
            if bytes > MAX_STATES_BYTES {
                self.code.budget.exhaust();
                break;
            }
            states.push(state.clone());
            self.step(&mut state, instruction);
        }
        states.push(state);
        states
    }

    fn state_at_end(&mut self, block: BlockId) -> Option<State> {
        let mut state = self.state_at(block).cloned()?;
        for instruction in &self.code.blocks[block].instructions {
            self.step(&mut state, instruction);
        }
        Some(state)
    }

    /// Returns the state at the beginning of the block that an edge leads to, if control comes along that
    /// edge.
    pub fn state_along(&mut self, from: BlockId, kind: EdgeKind) -> Option<State> {
        let end = self.state_at_end(from)?;
        let block = &self.code.blocks[from];
        self.along_edge(&end, block, kind)
    }

    /// Executes one instruction.
    pub fn step(&mut self, state: &mut State, instruction: &Instruction) {
        if !self.code.budget.spend(STEPS_OF_ONE) {
            return;
        }
        let step = Step {
            instruction,
            state,
            atoms: &mut self.atoms,
        };
        step.execute(&self.code.callees, &self.known_calls, &mut self.info);
    }
}

fn reverse_post_order(code: &FunctionCode) -> Vec<BlockId> {
    let graph = code.graph();
    let Some(entry) = graph.node_indices().next() else {
        return Vec::new();
    };
    let mut walk = DfsPostOrder::new(&graph, entry);
    let mut order = Vec::new();
    while let Some(node) = walk.next(&graph) {
        order.push(BlockId::of(node));
    }
    order.reverse();
    order
}
