//! Where control comes to a block from, and what holds there: where paths meet, and where a branch tells them apart.

use std::collections::BTreeSet;
use std::rc::Rc;

use iced_x86::Instruction;

use super::Execution;
use crate::code::graph::{BlockId, EdgeKind};
use crate::flow::condition::Flags;
use crate::flow::loops;
use crate::flow::state::State;

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
        let is_branch = (block.instructions.last()).is_some_and(Instruction::is_jcc_short_or_near);
        let is_shared = incoming.len() > 1 && is_branch && block.instructions.len() <= MAX_SHARED;
        if is_shared && !is_head {
            let states = incoming.iter().map(|(_, state)| state.clone()).collect();
            let state = State::merge(states, block.address(), &mut self.atoms)?;
            self.keep_ways(index, incoming, &state);
            return Some(state);
        }
        let mut states: Vec<State> = incoming.into_iter().map(|(_, state)| state).collect();
        states.extend(self.entering(index, entry));
        let mut state = State::merge(states, block.address(), &mut self.atoms)?;
        if !is_head {
            return Some(state);
        }
        if let Some(effects) = self.loops.get(&index).map(|own| own.effects.clone()) {
            let replaced = loops::replaced(block, &mut self.info);
            let before = state.registers.clone();
            state.enter_loop(&effects, replaced, block.address(), &mut self.atoms);
            let restored = self.restored.get(&index).copied().unwrap_or_default();
            for (number, value) in before.into_iter().enumerate() {
                if restored >> number & 1 == 1 {
                    state.registers[number] = value;
                }
            }
        }
        Some(state)
    }

    /// Keeps the paths to a block that ends in a branch, at which `merged` holds, if that depends on them.
    fn keep_ways(&mut self, index: BlockId, ways: Vec<(BlockId, State)>, merged: &State) {
        let block = &self.code.blocks[index];
        let end = Rc::new(self.run_through(index, merged.clone()));
        self.ends.insert(index, end.clone());
        let depends = match &end.flags {
            Flags::Unknown => false,
            Flags::Comparison { left, right, .. } => {
                [left, right].into_iter().any(|side| self.atoms.depends_on_way(side, block.address()))
            }
            Flags::ZeroAndSign { of, .. } => self.atoms.depends_on_way(of, block.address()),
        };
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
        let component = self.loops.get(&head).and_then(|own| own.component.clone());
        let Some(component) = component else {
            return Vec::new();
        };
        let is_first = component.contains(&BlockId::ENTRY);
        let mut states: Vec<State> = is_first.then(|| entry.clone()).into_iter().collect();
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
        let ways = self.incoming(block, &entry, false);
        ways.into_iter().map(|(_, state)| state).collect()
    }
}
