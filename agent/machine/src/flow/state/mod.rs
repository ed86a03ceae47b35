//! What is known at one point of a function: registers, stack slots, flags, facts.

pub mod private;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use evictscope_model::FileAddress;

use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::condition::{Condition, Relation};
use crate::flow::values::flags::Flags;
use crate::flow::values::value::Value;
use crate::ir::{Flow, Instruction, Test};

/// The most facts to carry along.
const MAX_FACTS: usize = 64;
/// The most stack slots to carry along.
const MAX_SLOTS: usize = 256;

/// What is known at one point.
#[derive(Clone, Debug)]
pub struct State {
    /// By number.
    pub registers: Vec<Value>,
    /// What the flags say.
    pub flags: Flags,
    /// Stack slots: offset from the stack pointer at entry → value and width in bytes.
    pub stack: BTreeMap<i64, (Value, u8)>,
    /// The lanes of vector registers, by register number and lane number, from the lowest.
    pub lanes: BTreeMap<(u8, u8), Value>,
    /// Offsets of stack slots whose address others may know: a callee, memory, or a value that is no longer known to be
    /// on the stack. Each store to memory may reach the slots from there on, as far as
    /// [`Limits::reach`](crate::flow::Limits::reach). Offsets that reach no further than another are left out.
    pub escaped: BTreeSet<i64>,
    /// Changes whenever memory may have changed.
    pub generation: FileAddress,
    /// What the branches taken imply.
    pub facts: Rc<Vec<Condition>>,
}

impl State {
    /// Makes the state at a function's first instruction.
    pub fn at_entry(atoms: &mut Atoms) -> Self {
        Self {
            registers: (0..atoms.convention().registers).map(|number| atoms.value(Atom::Entry(number as u8))).collect(),
            flags: Flags::Unknown,
            stack: BTreeMap::new(),
            lanes: BTreeMap::new(),
            escaped: BTreeSet::new(),
            generation: FileAddress::default(),
            facts: Rc::new(Vec::new()),
        }
    }

    /// Estimates the memory that it takes, in bytes, without the facts, which states share.
    pub fn bytes(&self) -> usize {
        let values = (self.registers.iter()).chain(self.stack.values().map(|(value, _)| value));
        let values = values.chain(self.lanes.values()).map(Value::bytes);
        size_of::<Self>() + size_of::<i64>() * self.escaped.len() + values.sum::<usize>()
    }

    /// Returns the condition under which a branch is taken, if it is one and the condition is known.
    pub fn condition_of(&self, branch: &Instruction, atoms: &mut Atoms) -> Option<Condition> {
        if let Flow::Branch(test, _) = branch.flow { self.condition(test, atoms) } else { None }
    }

    /// Returns the condition under which a test holds; `None` if it is not known, or not followed.
    pub fn condition(&self, test: Test, atoms: &mut Atoms) -> Option<Condition> {
        match test {
            Test::Compared(relation) => self.flags.condition(relation, atoms),
            Test::Zero { register, width, is_zero } => {
                let bits = width.saturating_mul(8);
                let left = atoms.zero_extended(&self.registers[usize::from(register)], bits);
                let relation = if is_zero { Relation::Equal } else { Relation::NotEqual };
                Some(Condition { relation, left, right: Value::constant(0), bits })
            }
            Test::Bit { register, bit, is_set } => {
                // It is the sign of a number that ends there.
                let bits = bit + 1;
                let left = atoms.zero_extended(&self.registers[usize::from(register)], bits);
                let condition = Condition { relation: Relation::Less, left, right: Value::constant(0), bits };
                Some(if is_set { condition } else { condition.negated() })
            }
            Test::Unknown => None,
        }
    }

    /// Adds what a branch implies. A value that is known to be a number becomes that number, because compilers return a
    /// value that they have just found to be 0 when 0 is meant. `is_whole` says that the left side has no bits beyond
    /// those compared.
    pub fn assume(&mut self, fact: Condition, is_whole: bool) {
        if fact.relation == Relation::Equal
            && is_whole
            && fact.left.as_constant().is_none()
            && fact.right.as_constant().is_some()
        {
            let slots = self.stack.values_mut().map(|(value, _)| value);
            for value in self.registers.iter_mut().chain(slots) {
                if *value == fact.left {
                    value.clone_from(&fact.right);
                }
            }
        }
        if self.facts.len() < MAX_FACTS && !self.facts.contains(&fact) {
            Rc::make_mut(&mut self.facts).push(fact);
        }
    }

    /// Forgets every stack slot that overlaps `width` bytes at `offset`, which are overwritten.
    pub fn overwrite_slots(&mut self, offset: i64, width: i64) {
        let end = offset.saturating_add(width);
        self.stack.retain(|at, (_, size)| *at >= end || at.saturating_add(i64::from(*size)) <= offset);
    }

    /// Forgets the stack slots that can be reached from `lowest` on, which may be overwritten or not: a stack address
    /// in one of them escapes. Slots that only their names reach remain.
    pub fn forget_slots(&mut self, lowest: i64, atoms: &mut Atoms) {
        let end = atoms.reached_from(lowest);
        self.forget_between(lowest.max(atoms.limits.private_below), end, atoms);
    }

    /// Forgets all stack slots.
    pub fn forget_all_slots(&mut self, atoms: &mut Atoms) {
        self.forget_between(i64::MIN, i64::MAX, atoms);
    }

    fn forget_between(&mut self, lowest: i64, end: i64, atoms: &mut Atoms) {
        let ends_above = |at: i64, size: u8| at.saturating_add(i64::from(size)) > lowest;
        let forgotten = self.stack.extract_if(..end, |at, (_, size)| ends_above(*at, *size));
        let values: Vec<Value> = forgotten.map(|(_, (value, _))| value).collect();
        for value in values {
            self.escape_value(&value, atoms);
        }
    }

    /// Forgets all stack slots that others can reach, also through addresses in such slots.
    pub fn forget_escaped(&mut self, atoms: &mut Atoms) {
        let mut reached = BTreeSet::new();
        while self.escaped != reached {
            reached.clone_from(&self.escaped);
            for lowest in &reached {
                self.forget_slots(*lowest, atoms);
            }
        }
    }

    /// Records that others may know the address of the slot at `offset`.
    pub fn escape(&mut self, offset: i64, atoms: &Atoms) {
        let end = atoms.reached_from(offset);
        let before = self.escaped.range(..=offset).next_back();
        if before.is_none_or(|before| atoms.reached_from(*before) < end) {
            self.escaped.retain(|known| *known < offset || atoms.reached_from(*known) > end);
            self.escaped.insert(offset);
        }
    }

    /// Records that others may know `value`, which matters if it can be an address on the stack.
    pub fn escape_value(&mut self, value: &Value, atoms: &mut Atoms) {
        if let Some(offset) = atoms.reach_on_stack(value) {
            self.escape(offset, atoms);
        }
    }

    /// Writes a stack slot.
    pub fn store_slot(&mut self, offset: i64, width: u8, value: Value) {
        self.overwrite_slots(offset, i64::from(width));
        if self.stack.len() < MAX_SLOTS {
            self.stack.insert(offset, (value, width));
        }
    }

    /// Takes into account that the instruction at `address` changes memory in an unknown way: later
    /// loads may see something else, and slots that others can reach are forgotten.
    pub fn clobber_memory(&mut self, address: FileAddress, atoms: &mut Atoms) {
        self.generation = address;
        self.forget_escaped(atoms);
    }
}
