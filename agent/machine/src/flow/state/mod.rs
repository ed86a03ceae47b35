//! What is known at one point of a function: registers, stack slots, flags, facts; and what can be read there.

pub mod private;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;

use crate::code::instruction::{RBP, RSP, register_name};
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::condition::{Condition, Flags, Relation};
use crate::flow::values::value::Value;

/// A value in reach at a site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register plus a constant.
    Register {
        /// x86-64 number (rax 0, rcx 1, rdx 2, rbx 3, rsp 4, …).
        number: u8,
        /// 4 (zero-extended) or 8 bytes.
        width: u8,
        /// What is added.
        plus: i64,
    },
    /// Memory at a register plus a displacement.
    Memory {
        /// x86-64 number of the base register.
        base: u8,
        /// Displacement in bytes.
        displacement: i64,
        /// 4 (zero-extended) or 8 bytes.
        width: u8,
    },
    /// Always the same.
    Constant(i64),
    /// A global variable, 8 bytes.
    Global {
        /// Virtual address, as in the ELF file.
        address: FileAddress,
        /// Its name, for people.
        name: String,
    },
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { number, width, plus } => {
                f.write_str(register_name(*number, *width))?;
                if *plus == 0 { Ok(()) } else { write!(f, "{plus:+}") }
            }
            Self::Memory { base, displacement, .. } => {
                let sign = if *displacement < 0 { '-' } else { '+' };
                write!(f, "[{}{sign}{:#x}]", register_name(*base, 8), displacement.unsigned_abs())
            }
            Self::Constant(value) => write!(f, "{value}"),
            Self::Global { name, .. } => f.write_str(name),
        }
    }
}

/// The most facts to carry along.
const MAX_FACTS: usize = 64;
/// The most values that a merged value can be one of.
const MAX_OPTIONS: usize = 8;
/// The most stack slots to carry along.
const MAX_SLOTS: usize = 256;

/// What is known at one point.
#[derive(Clone, Debug)]
pub struct State {
    /// By x86-64 number.
    pub registers: [Value; 16],
    /// What the flags say.
    pub flags: Flags,
    /// Stack slots: offset from the stack pointer at entry → value and width in bytes.
    pub stack: BTreeMap<i64, (Value, u8)>,
    /// The lanes of vector registers, by register number and lane number, from the lowest.
    pub lanes: BTreeMap<(usize, usize), Value>,
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
            registers: std::array::from_fn(|number| atoms.value(Atom::Entry(u8::try_from(number).unwrap_or(u8::MAX)))),
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

    /// Returns what holds at the block at `address`, whichever of `states` control comes from.
    pub fn merge(mut states: Vec<Self>, address: FileAddress, atoms: &mut Atoms) -> Option<Self> {
        let mut merged = states.pop()?;
        if states.is_empty() {
            return Some(merged);
        }
        let mut lost = Vec::new();
        let mut merge = |merged_value: &mut Value, others: Vec<Value>, index| {
            let mut options = others;
            options.push(merged_value.clone());
            *merged_value = merge_values(options, address, index, atoms, &mut lost);
        };
        for (number, merged_value) in merged.registers.iter_mut().enumerate() {
            if states.iter().all(|state| state.registers[number] == *merged_value) {
                continue;
            }
            let others = states.iter().map(|state| state.registers[number].clone());
            let index = u32::try_from(number).unwrap_or(u32::MAX);
            merge(merged_value, others.collect(), index);
        }
        for (at, (merged_value, width)) in &mut merged.stack {
            let same = |state: &Self| {
                state.stack.get(at).is_some_and(|(value, other)| value == merged_value && other == width)
            };
            if states.iter().all(same) {
                continue;
            }
            let others: Option<Vec<Value>> = states
                .iter()
                .map(|state| match state.stack.get(at) {
                    Some((value, other)) if other == width => Some(value.clone()),
                    _ => None,
                })
                .collect();
            if let Some(others) = others {
                let index = 0x8000_0000 | u32::try_from(at & 0x7fff_ffff).unwrap_or(0);
                merge(merged_value, others, index);
            }
        }
        merged.drop_slots_missing_in(&states, &mut lost);
        for state in &mut states {
            state.drop_slots_missing_in(std::slice::from_ref(&merged), &mut lost);
            if state.flags != merged.flags {
                merged.flags = Flags::Unknown;
            }
            if state.generation != merged.generation {
                merged.generation = address;
            }
            for offset in &state.escaped {
                merged.escape(*offset, atoms);
            }
            merged.lanes.retain(|lane, value| state.lanes.get(lane) == Some(value));
            Rc::make_mut(&mut merged.facts).retain(|fact| state.facts.contains(fact));
        }
        for value in lost {
            merged.escape_value(&value, atoms);
        }
        Some(merged)
    }

    /// Removes the slots that one of `others` does not have in the same width, and adds what they held to `lost`.
    fn drop_slots_missing_in(&mut self, others: &[Self], lost: &mut Vec<Value>) {
        let is_missing = |at: &i64, slot: &mut (Value, u8)| {
            !others.iter().all(|other| other.stack.get(at).is_some_and(|(_, width)| *width == slot.1))
        };
        let dropped = self.stack.extract_if(.., is_missing);
        lost.extend(dropped.map(|(_, (value, _))| value));
    }
}

/// Returns the value that is one of `options`. If there are too many, it is opaque and they are added to `lost`.
fn merge_values(
    options: Vec<Value>,
    address: FileAddress,
    index: u32,
    atoms: &mut Atoms,
    lost: &mut Vec<Value>,
) -> Value {
    match options.first() {
        Some(first) if options.iter().all(|option| option == first) => first.clone(),
        Some(_) if options.len() <= MAX_OPTIONS => atoms.value(Atom::Merged { address, options }),
        _ => {
            lost.extend(options);
            atoms.value(Atom::Opaque { address, index })
        }
    }
}

/// A register by which stack slots are found.
#[derive(Clone, Copy, Debug)]
pub struct SlotBase {
    base: usize,
    /// Where it points, as an offset from the stack pointer at entry.
    at: i64,
    /// The lowest slot that is certain to last.
    lowest: i64,
}

impl SlotBase {
    /// Returns the stack pointer, or the frame pointer if an array of any length is below the slots.
    pub fn of(state: &State, atoms: &mut Atoms) -> Option<Self> {
        let mut known = |base: usize| atoms.stack_offset(&state.registers[base]);
        let (base, at) = if let Some(at) = known(RSP) { (RSP, at) } else { (RBP, known(RBP)?) };
        let lowest = if base == RSP { at } else { i64::MIN };
        Some(Self { base, at, lowest })
    }

    /// Returns the operand that reads the slot at an offset from the stack pointer at entry.
    pub fn slot(self, offset: i64, width: u8) -> Option<Operand> {
        let operand = Operand::Memory { base: self.base as u8, displacement: offset.wrapping_sub(self.at), width };
        (offset >= self.lowest).then_some(operand)
    }
}
