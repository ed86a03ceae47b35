//! The execution of a whole function: its passes, the edges between blocks, and the ways to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::loops::{self, Loop, Order};
use super::numbers::{Heads, Place};
use crate::code::graph::{Block, BlockId, Callee, EdgeKind, FunctionCode, PerBlock};
use crate::flow::state::State;
use crate::flow::state::private;
use crate::flow::transfer::{Known, Step};
use crate::flow::values::atoms::Atoms;
use crate::flow::values::condition::{self, Condition, Relation};
use crate::flow::values::value::Value;
use crate::ir::{Instruction, RegisterSet, bit};
use crate::isa::numbers;

/// Budget for executing one instruction, in steps.
const STEPS_OF_ONE: u64 = 2;
/// The most bytes that the states in one block may take.
const MAX_STATES_BYTES: usize = 32 << 20;
/// A function with the state at the beginning of each of its blocks.
pub struct Execution<'a> {
    /// The function.
    pub code: &'a FunctionCode,
    /// Every atom that occurs in the states.
    pub atoms: Atoms,
    /// The order in which blocks are executed.
    pub order: Order,
    entry_states: PerBlock<Option<State>>,
    /// For the blocks whose branch depends on where control comes from: the blocks it can come from, with the state on
    /// each path.
    ways: HashMap<BlockId, Vec<(BlockId, State)>>,
    /// What holds at the ends of blocks, until all blocks that follow have been executed.
    ends: HashMap<BlockId, Rc<State>>,
    /// By their heads.
    loops: HashMap<BlockId, Loop>,
    /// By the head of a loop: the registers that the loop writes, but that hold what they held before it whenever
    /// control comes to the head.
    restored: HashMap<BlockId, RegisterSet>,
    /// By register at the head of a loop: the number that it holds whenever control comes there.
    numbers: BTreeMap<Place, u64>,
    /// What is known about calls and loads.
    pub known: Known,
    without: Option<(BlockId, EdgeKind)>,
}

impl<'a> Execution<'a> {
    /// Executes `code` from its entry.
    pub fn run(code: &'a FunctionCode) -> Self {
        let mut atoms = Atoms::new(code.architecture, code.budget.clone());
        let entry = State::at_entry(&mut atoms);
        Self::run_from(code, entry, atoms, None)
    }

    /// Executes `code` from its entry, where `entry` holds. The edge `without` is never taken.
    pub fn run_from(code: &'a FunctionCode, entry: State, atoms: Atoms, without: Option<(BlockId, EdgeKind)>) -> Self {
        let mut execution = Self::new(code, atoms, without);
        let begin = execution.atoms.stack_offset(&entry.registers[execution.atoms.convention().stack_pointer()]);
        execution.atoms.limits.private_below = if begin == Some(0) { private::below(code) } else { i64::MIN };
        execution.loops = execution.order.loops(code);
        execution.execute(&entry);
        execution
    }

    /// Makes an execution in which nothing has been executed.
    pub fn new(code: &'a FunctionCode, atoms: Atoms, without: Option<(BlockId, EdgeKind)>) -> Self {
        Self {
            code,
            atoms,
            order: Order::of(code),
            entry_states: code.blocks.filled(None),
            ways: HashMap::new(),
            ends: HashMap::new(),
            loops: HashMap::new(),
            restored: HashMap::new(),
            numbers: BTreeMap::new(),
            known: Known { linked: code.linked.clone(), ..Known::default() },
            without,
        }
    }

    /// Executes the function once more with what is now known about its calls.
    pub fn again(&mut self) {
        let entry = State::at_entry(&mut self.atoms);
        self.execute(&entry);
    }

    fn execute(&mut self, entry: &State) {
        self.restored.clear();
        self.numbers.clear();
        while self.pass(entry) && self.find_restored(entry) {}
    }

    /// Executes each block once. Returns `false` if the budget does not suffice.
    fn pass(&mut self, entry: &State) -> bool {
        self.ends.clear();
        for index in self.order.blocks.clone() {
            self.ways.remove(&index);
            let state = self.merge_into(index, entry);
            let bytes = state.as_ref().map_or(0, State::bytes);
            if !self.code.budget.keep(bytes) {
                return false;
            }
            self.entry_states[index] = state;
            for before in &self.code.blocks[index].predecessors {
                let mut next = self.code.blocks[*before].successors.iter();
                if next.all(|(next, _)| self.order.is_executed(*next, index)) {
                    self.ends.remove(before);
                }
            }
        }
        true
    }

    /// Finds the registers that hold the same on every path to the head of a loop, or what they held at the start of
    /// the iteration, according to what a pass has found there. Returns whether any were not known.
    fn find_restored(&mut self, entry: &State) -> bool {
        let mut is_new = false;
        let mut heads = Heads::default();
        for index in self.order.blocks.clone() {
            if !self.loops.contains_key(&index) {
                continue;
            }
            let ways = self.incoming(index, entry, true);
            let Some(Loop { changes, .. }) = self.loops.get(&index) else { continue };
            let address = self.code.blocks[index].address();
            let before = self.restored.get(&index).copied().unwrap_or_default();
            let mut known = before;
            for number in (0..self.atoms.convention().registers).filter(|number| changes.writes(*number)) {
                let itself = loops::changed(number, address, &mut self.atoms);
                let mut values = ways.iter().map(|(_, way)| &way.registers[number]).filter(|value| **value != itself);
                let first = values.next();
                if first.is_some() && values.all(|other| Some(other) == first) {
                    known |= bit(number as u8);
                } else {
                    let values = ways.iter().map(|(_, way)| way.registers[number].clone()).collect();
                    heads.add((index, number), &itself, values);
                }
            }
            is_new |= known != before;
            self.restored.insert(index, known);
        }
        self.ends.clear();
        for (place, number) in heads.numbers(&self.atoms) {
            is_new |= self.numbers.insert(place, number).is_none();
        }
        is_new && !self.code.budget.is_spent()
    }

    /// Returns what holds at the end of a block; `None` if it cannot be reached.
    fn end_of(&mut self, block: BlockId) -> Option<Rc<State>> {
        if let Some(end) = self.ends.get(&block) {
            return Some(end.clone());
        }
        let begin = self.state_at(block)?.clone();
        let end = Rc::new(self.run_through(block, begin));
        self.ends.insert(block, end.clone());
        Some(end)
    }

    /// Returns what is known after an edge out of `block`, at whose end `end` holds; `None` if that rules the edge out.
    pub fn along_edge(&mut self, end: &State, block: &Block, kind: EdgeKind) -> Option<State> {
        self.code.budget.scan(end.bytes());
        let mut state = end.clone();
        let last = block.instructions.last()?;
        if let Some(condition) = end.condition_of(last, &mut self.atoms) {
            let condition = if kind == EdgeKind::FallThrough { condition.negated() } else { condition };
            if self.decide(&end.facts, &condition) == Some(false) {
                return None;
            }
            for fact in self.atoms.consequences(&end.facts, condition)? {
                let is_whole = fact.bits == 64 || self.atoms.zero_extended(&fact.left, fact.bits) == fact.left;
                state.assume(fact, is_whole);
            }
        }
        Some(state)
    }

    /// Returns whether a condition holds, if that follows from `facts`, or from no address on the stack being 0.
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

    /// Returns the state before the first instruction of a block; `None` if it cannot be reached.
    pub fn state_at(&self, block: BlockId) -> Option<&State> {
        self.entry_states[block].as_ref()
    }

    /// Returns the states before each instruction of a block, and the one after the last.
    pub fn states_in(&mut self, block: BlockId) -> Vec<State> {
        if let Some(state) = self.state_at(block).cloned() { self.states_from(block, state) } else { Vec::new() }
    }

    /// Shows `look` each instruction of a block before it is executed, with what is known there.
    pub fn watch(&mut self, block: BlockId, look: impl FnMut(&mut Self, &Instruction, &State)) {
        if let Some(state) = self.state_at(block).cloned() {
            self.watch_from(block, state, look);
        }
    }

    /// Does the same if `state` holds at the beginning of the block, and returns what holds at its end.
    pub(in crate::flow) fn watch_from(
        &mut self,
        block: BlockId,
        mut state: State,
        mut look: impl FnMut(&mut Self, &Instruction, &State),
    ) -> State {
        for instruction in &self.code.blocks[block].instructions {
            look(self, instruction, &state);
            self.step(&mut state, instruction);
        }
        state
    }

    /// Returns the same as [`Self::states_in`], if the block is left by an edge.
    pub fn states_towards(&mut self, block: BlockId, kind: EdgeKind) -> Vec<State> {
        match self.only_way(block, kind) {
            Some((_, state)) => self.states_from(block, state),
            None => self.states_in(block),
        }
    }

    fn states_from(&mut self, block: BlockId, mut state: State) -> Vec<State> {
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

    /// Executes a block from its beginning, where `state` holds, and returns what holds at its end.
    fn run_through(&mut self, block: BlockId, mut state: State) -> State {
        for instruction in &self.code.blocks[block].instructions {
            self.step(&mut state, instruction);
        }
        state
    }

    /// Returns the state at the beginning of the block that an edge leads to, if control takes that edge.
    pub fn state_along(&mut self, from: BlockId, kind: EdgeKind) -> Option<State> {
        let begin = match self.only_way(from, kind) {
            Some((_, state)) => state,
            None => self.state_at(from)?.clone(),
        };
        let end = self.run_through(from, begin);
        self.along_edge(&end, &self.code.blocks[from], kind)
    }

    /// Executes one instruction.
    pub fn step(&mut self, state: &mut State, instruction: &Instruction) {
        let is_hook = self.code.hooks.contains(&instruction.address);
        if !self.code.budget.spend(STEPS_OF_ONE) || is_hook {
            return;
        }
        let callee = instruction.callee().and_then(|callee| self.code.callees.get(&callee));
        let step = Step::new(instruction, state, &mut self.atoms, &self.known);
        step.execute(*callee.unwrap_or(&Callee::UNKNOWN));
    }
}

/// The most instructions in a block that is executed for each path to it.
const MAX_SHARED: usize = 16;

impl Execution<'_> {
    /// Returns the blocks from which control can come to a block, with the state on each path. Edges back are left out
    /// unless `with_back`.
    pub(super) fn incoming(&mut self, index: BlockId, entry: &State, with_back: bool) -> Vec<(BlockId, State)> {
        let mut incoming = Vec::new();
        if index == BlockId::ENTRY {
            incoming.push((index, entry.clone()));
        }
        let mut predecessors = self.code.blocks[index].predecessors.clone();
        predecessors.sort_unstable();
        predecessors.dedup();
        for predecessor in predecessors {
            if !with_back && self.order.is_back(predecessor, index) {
                continue;
            }
            let states = self.edges_between(predecessor, index).into_iter();
            incoming.extend(states.map(|state| (predecessor, state)));
        }
        incoming
    }

    pub(super) fn merge_into(&mut self, index: BlockId, entry: &State) -> Option<State> {
        let block = &self.code.blocks[index];
        let incoming = self.incoming(index, entry, false);
        let is_head = self.order.is_loop_head(block, index);
        let is_branch = (block.instructions.last()).is_some_and(Instruction::is_branch);
        let is_shared = incoming.len() > 1 && is_branch && block.instructions.len() <= MAX_SHARED;
        if is_shared && !is_head {
            let states = incoming.iter().map(|(_, state)| state.clone()).collect();
            let state = State::merge(states, block.address(), &mut self.atoms)?;
            self.keep_ways(index, incoming, &state);
            return Some(state);
        }
        let mut states: Vec<State> = incoming.into_iter().map(|(_, state)| state).collect();
        let restored = self.restored.get(&index).copied().unwrap_or_default();
        let held = numbers(restored).map(usize::from).filter_map(|number| {
            let (first, others) = states.split_first()?;
            let value = &first.registers[number];
            others.iter().all(|other| other.registers[number] == *value).then(|| (number, value.clone()))
        });
        let held: Vec<(usize, Value)> = held.collect();
        states.extend(self.entering(index, entry));
        let mut state = State::merge(states, block.address(), &mut self.atoms)?;
        if let Some(changes) = self.loops.get(&index).map(|known| known.changes.clone()) {
            let replaced = loops::replaced(block);
            state.enter_loop(&changes, replaced, block.address(), &mut self.atoms);
            let always = self.numbers.range((index, 0)..=(index, usize::MAX));
            let always = always.map(|((_, register), number)| (*register, Value::constant(*number)));
            for (register, value) in held.into_iter().chain(always) {
                state.registers[register] = value;
            }
        }
        Some(state)
    }

    /// Keeps the paths to a block that ends in a branch, at which `merged` holds, if that depends on them.
    fn keep_ways(&mut self, index: BlockId, ways: Vec<(BlockId, State)>, merged: &State) {
        let block = &self.code.blocks[index];
        let end = Rc::new(self.run_through(index, merged.clone()));
        self.ends.insert(index, end.clone());
        let condition = block.instructions.last().and_then(|branch| end.condition_of(branch, &mut self.atoms));
        let depends = condition.is_some_and(|Condition { left, right, .. }| {
            [left, right].iter().any(|side| self.atoms.depends_on_way(side, block.address()))
        });
        let bytes = ways.iter().map(|(_, state)| state.bytes()).sum();
        if depends && self.code.budget.keep(bytes) {
            self.ways.insert(index, ways);
        }
    }

    /// Returns the paths to a block on which it can be left by an edge, with the state on each, if the branch at its
    /// end rules out others.
    pub(super) fn ways_along(&mut self, from: BlockId, kind: EdgeKind) -> Option<Vec<(BlockId, State)>> {
        let ways = self.ways.get(&from)?.clone();
        let all = ways.len();
        let mut possible = Vec::new();
        for (way, state) in ways {
            let end = self.run_through(from, state.clone());
            if self.along_edge(&end, &self.code.blocks[from], kind).is_some() {
                possible.push((way, state));
            }
        }
        (possible.len() < all).then_some(possible)
    }

    /// Returns what holds where control enters the loops that count as one with the loop of a head, if that can be
    /// entered past the head. All blocks that it comes from are executed before.
    fn entering(&mut self, head: BlockId, entry: &State) -> Vec<State> {
        let component = self.loops.get(&head).and_then(|known| known.component.clone());
        let Some(component) = component else { return Vec::new() };
        let mut states: Vec<State> = component.contains(&BlockId::ENTRY).then(|| entry.clone()).into_iter().collect();
        for block in &component {
            let predecessors = self.code.blocks[*block].predecessors.iter();
            let outside: BTreeSet<BlockId> = predecessors.filter(|from| !component.contains(from)).copied().collect();
            for from in outside {
                states.extend(self.edges_between(from, *block));
            }
        }
        states
    }

    fn edges_between(&mut self, from: BlockId, to: BlockId) -> Vec<State> {
        let block = &self.code.blocks[from];
        let kinds: Vec<EdgeKind> =
            block.successors.iter().filter(|(successor, _)| *successor == to).map(|(_, kind)| *kind).collect();
        let mut states = Vec::new();
        for kind in kinds {
            if self.without == Some((from, kind)) {
                continue;
            }
            let Some(ways) = self.ways_along(from, kind) else {
                let end = self.end_of(from);
                states.extend(end.and_then(|end| self.along_edge(&end, block, kind)));
                continue;
            };
            for (_, begin) in ways {
                let end = self.run_through(from, begin);
                states.extend(self.along_edge(&end, block, kind));
            }
        }
        states
    }

    /// Returns the block that control comes from if a block is left by an edge, with the state on that path, if the
    /// branch at its end rules out all others.
    pub fn only_way(&mut self, block: BlockId, kind: EdgeKind) -> Option<(BlockId, State)> {
        let mut ways = self.ways_along(block, kind)?.into_iter();
        ways.next().filter(|_| ways.next().is_none())
    }

    /// Returns what holds at the head of a loop in its first iteration, on each path there; nothing for another block.
    pub(in crate::flow) fn first_turns(&mut self, block: BlockId) -> Vec<State> {
        if !self.order.is_loop_head(&self.code.blocks[block], block) {
            return Vec::new();
        }
        let entry = State::at_entry(&mut self.atoms);
        self.incoming(block, &entry, false).into_iter().map(|(_, state)| state).collect()
    }
}
