//! What is known at one point of a function: registers, stack slots, flags, facts.

use std::collections::BTreeMap;
use std::rc::Rc;

use iced_x86::ConditionCode;

use crate::flow::value::{Atom, Atoms, Condition, Relation, Value};

/// x86-64 number of the stack pointer.
pub const RSP: usize = 4;
/// x86-64 number of the frame pointer, where there is one.
pub const RBP: usize = 5;
/// x86-64 numbers of the registers that a call may change (System V ABI).
pub const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
/// Most facts that are carried along.
const MAX_FACTS: usize = 64;
/// Most values that a merged value can be one of.
const MAX_OPTIONS: usize = 8;
/// Most stack slots that are carried along.
const MAX_SLOTS: usize = 256;

/// What the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Nothing that is known.
    Unknown,
    /// They are those of `left - right` over `bits` bits.
    Comparison {
        /// Minuend.
        left: Value,
        /// Subtrahend.
        right: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
    /// Zero and sign flag are those of a result; carry and overflow are not known.
    ZeroAndSign {
        /// The result.
        of: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
}

impl Flags {
    /// What it means that `code` holds.
    pub fn condition(&self, code: ConditionCode) -> Option<Condition> {
        let make = |relation, left: &Value, right: &Value, bits| {
            Some(Condition {
                relation,
                left: left.clone(),
                right: right.clone(),
                bits,
            })
        };
        let (left, right, bits, exact) = match self {
            Self::Unknown => return None,
            Self::Comparison { left, right, bits } => (left.clone(), right.clone(), *bits, true),
            Self::ZeroAndSign { of, bits } => (of.clone(), Value::constant(0), *bits, false),
        };
        match code {
            ConditionCode::e => make(Relation::Equal, &left, &right, bits),
            ConditionCode::ne => make(Relation::NotEqual, &left, &right, bits),
            ConditionCode::s => make(
                Relation::Less,
                &left.minus(&right),
                &Value::constant(0),
                bits,
            ),
            ConditionCode::ns => make(
                Relation::LessOrEqual,
                &Value::constant(0),
                &left.minus(&right),
                bits,
            ),
            _ if !exact => None,
            ConditionCode::b => make(Relation::Below, &left, &right, bits),
            ConditionCode::ae => make(Relation::BelowOrEqual, &right, &left, bits),
            ConditionCode::a => make(Relation::Below, &right, &left, bits),
            ConditionCode::be => make(Relation::BelowOrEqual, &left, &right, bits),
            ConditionCode::l => make(Relation::Less, &left, &right, bits),
            ConditionCode::ge => make(Relation::LessOrEqual, &right, &left, bits),
            ConditionCode::g => make(Relation::Less, &right, &left, bits),
            ConditionCode::le => make(Relation::LessOrEqual, &left, &right, bits),
            _ => None,
        }
    }
}

/// What is known at one point.
#[derive(Clone, Debug)]
pub struct State {
    /// By x86-64 number.
    pub registers: [Value; 16],
    /// What the flags say.
    pub flags: Flags,
    /// Stack slots: offset from the stack pointer at entry → value and width in bytes.
    pub stack: BTreeMap<i64, (Value, u8)>,
    /// Lowest offset of a stack slot whose address was handed out.
    pub escaped: Option<i64>,
    /// Changes whenever memory may have changed.
    pub generation: u64,
    /// What the branches taken imply.
    pub facts: Rc<Vec<Condition>>,
}

impl State {
    /// At a function's first instruction.
    pub fn at_entry(atoms: &mut Atoms) -> Self {
        Self {
            registers: std::array::from_fn(|number| {
                atoms.value(Atom::Entry(u8::try_from(number).unwrap_or(u8::MAX)))
            }),
            flags: Flags::Unknown,
            stack: BTreeMap::new(),
            escaped: None,
            generation: 0,
            facts: Rc::new(Vec::new()),
        }
    }

    /// About how much memory it takes, without the facts, which states share.
    pub fn bytes(&self) -> usize {
        let values = (self.registers.iter()).chain(self.stack.values().map(|(value, _)| value));
        size_of::<Self>() + values.map(Value::bytes).sum::<usize>()
    }

    /// Adds what a branch implies. What is known to be a number becomes that number, as compilers
    /// return a value that they have just found to be 0 for 0. `is_whole` says that the left side has
    /// no bits beyond those compared.
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

    /// Forgets every stack slot that overlaps `width` bytes at `offset`.
    pub fn forget_slots(&mut self, offset: i64, width: i64) {
        self.stack.retain(|at, (_, size)| {
            *at >= offset.saturating_add(width) || at.saturating_add(i64::from(*size)) <= offset
        });
    }

    /// Writes a stack slot.
    pub fn store_slot(&mut self, offset: i64, width: u8, value: Value) {
        self.forget_slots(offset, i64::from(width));
        if self.stack.len() < MAX_SLOTS {
            self.stack.insert(offset, (value, width));
        }
    }

    /// Memory changed at `address` in a way that is not known: loads from now on are new ones, and
    /// slots that others can reach are forgotten.
    pub fn clobber_memory(&mut self, address: u64) {
        self.generation = address;
        if let Some(escaped) = self.escaped {
            self.stack.retain(|at, _| *at < escaped);
        }
    }

    /// What holds at the block at `address` whichever of `states` control comes from.
    pub fn merge(mut states: Vec<Self>, address: u64, atoms: &mut Atoms) -> Option<Self> {
        let mut merged = states.pop()?;
        if states.is_empty() {
            return Some(merged);
        }
        for number in 0..merged.registers.len() {
            let options = states.iter().map(|state| &state.registers[number]);
            let own = merged.registers[number].clone();
            let index = u32::try_from(number).unwrap_or(u32::MAX);
            merged.registers[number] = merge_values(
                options.cloned().chain([own]).collect(),
                address,
                index,
                atoms,
            );
        }
        let slots: Vec<(i64, u8)> = merged
            .stack
            .iter()
            .map(|(at, (_, width))| (*at, *width))
            .collect();
        for (at, width) in slots {
            let others: Option<Vec<Value>> = states
                .iter()
                .map(|state| match state.stack.get(&at) {
                    Some((value, other)) if *other == width => Some(value.clone()),
                    _ => None,
                })
                .collect();
            let Some(others) = others else {
                merged.stack.remove(&at);
                continue;
            };
            if let Some((own, _)) = merged.stack.get_mut(&at) {
                let index = 0x8000_0000 | u32::try_from(at & 0x7fff_ffff).unwrap_or(0);
                *own = merge_values(
                    others.into_iter().chain([own.clone()]).collect(),
                    address,
                    index,
                    atoms,
                );
            }
        }
        for state in &states {
            if state.flags != merged.flags {
                merged.flags = Flags::Unknown;
            }
            if state.generation != merged.generation {
                merged.generation = address;
            }
            merged.escaped = match (merged.escaped, state.escaped) {
                (Some(left), Some(right)) => Some(left.min(right)),
                (left, right) => left.or(right),
            };
            Rc::make_mut(&mut merged.facts).retain(|fact| state.facts.contains(fact));
        }
        Some(merged)
    }
}

impl State {
    /// Forgets what a loop changes whose head is the block at `address`. Facts are about values, not
    /// about places, so they go on to hold.
    pub fn enter_loop(&mut self, effects: &LoopEffects, address: u64, atoms: &mut Atoms) {
        let entry = atoms.value(Atom::Entry(4));
        if effects.memory {
            self.generation = address;
        }
        self.forget_slots_of(effects, &entry);
        for number in (0..self.registers.len()).filter(|number| *number != RSP) {
            if effects.registers[number] {
                let index = u32::try_from(number).unwrap_or(u32::MAX);
                self.registers[number] = atoms.value(Atom::Opaque { address, index });
            }
        }
        self.flags = Flags::Unknown;
    }

    /// Forgets the slots that a loop stores to: those it names, and, where it stores elsewhere or
    /// calls, all from the lowest on whose address is known to anyone; all of them where it moves the
    /// stack pointer.
    fn forget_slots_of(&mut self, effects: &LoopEffects, entry: &Value) {
        if effects.stack || effects.registers[RSP] {
            self.stack.clear();
            return;
        }
        // Where the frame pointer is used for something else, it may point anywhere.
        let offset = |state: &Self, slot: &LoopSlot| {
            if effects.registers[slot.base] {
                return None;
            }
            let base = state.registers.get(slot.base)?.minus(entry).as_constant()?;
            base.cast_signed().checked_add(slot.displacement)
        };
        let mut elsewhere = effects.memory;
        for slot in &effects.slots {
            match offset(self, slot) {
                Some(at) => self.forget_slots(at, slot.width),
                None => elsewhere = true,
            }
        }
        let taken = effects.addresses_taken.iter();
        let lowest_taken = taken.filter_map(|slot| offset(self, slot)).min();
        self.escaped = lowest_taken.into_iter().chain(self.escaped).min();
        if elsewhere {
            let registers = self.registers.iter().enumerate();
            let registers = registers.filter(|(number, _)| *number != RSP);
            let values = registers
                .map(|(_, value)| value)
                .chain(self.stack.values().map(|(value, _)| value));
            let known = values.filter_map(|value| value.minus(entry).as_constant());
            let lowest = known.map(u64::cast_signed).chain(self.escaped).min();
            if let Some(lowest) = lowest {
                self.stack.retain(|at, _| *at < lowest);
            }
        }
    }
}

/// What the instructions of a loop change.
#[derive(Clone, Debug, Default)]
pub struct LoopEffects {
    /// By x86-64 number.
    pub registers: [bool; 16],
    /// Whether they call, or store where they do not name a stack slot.
    pub memory: bool,
    /// Whether they push or pop.
    pub stack: bool,
    /// The stack slots that they store to.
    pub slots: Vec<LoopSlot>,
    /// The stack slots whose address they take.
    pub addresses_taken: Vec<LoopSlot>,
}

/// A stack slot as an instruction names it.
#[derive(Clone, Copy, Debug)]
pub struct LoopSlot {
    /// x86-64 number of the register that it is relative to.
    pub base: usize,
    /// Bytes from there.
    pub displacement: i64,
    /// Bytes.
    pub width: i64,
}

fn merge_values(options: Vec<Value>, address: u64, index: u32, atoms: &mut Atoms) -> Value {
    match options.first() {
        Some(first) if options.iter().all(|option| option == first) => first.clone(),
        Some(_) if options.len() <= MAX_OPTIONS => atoms.value(Atom::Merged { address, options }),
        _ => atoms.value(Atom::Opaque { address, index }),
    }
}
