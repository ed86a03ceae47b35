//! What one instruction does to a state: its effects, one after the other.
//!
//! A call returns an atom that names it, and changes what the calling convention lets it change. What an effect says is
//! not followed becomes an atom of its own, so nothing here leads to a wrong value.

mod expressions;
pub mod places;

use std::collections::HashMap;
use std::rc::Rc;

use evictscope_model::FileAddress;

use self::places::MemoryPlace;
use crate::code::graph::Callee;
use crate::flow::state::State;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::flags::Flags;
use crate::flow::values::value::Value;
use crate::ir::{Address, Clobber, Effect, Expression, Instruction, RegisterSet, bit};
use crate::isa::{Convention, numbers};

/// What is known about single calls and loads.
#[derive(Default)]
pub struct Known {
    /// By the address of a call, what it leaves in stack slots of 8 bytes, by their offset from the stack
    /// pointer at the caller's entry.
    pub calls: HashMap<FileAddress, Vec<(i64, Value)>>,
    /// The numbers that globals hold, by their address and width in bytes.
    pub loads: HashMap<(FileAddress, u8), u64>,
    /// The addresses that globals hold.
    pub linked: Rc<HashMap<FileAddress, FileAddress>>,
}

/// Distinguishes what one instruction makes opaque: a register that it clobbers has its number, the parts of its
/// expressions follow this, in the order in which they are written.
const PARTS: u32 = 64;
/// The most parts of one effect.
const PARTS_OF_EFFECT: usize = 16;
/// Bytes of a word: a push moves the stack pointer by so many, and a lane is as long.
const WORD: u8 = 8;
/// The most values that one instruction keeps for its later effects.
const TEMPORARIES: usize = 4;

/// Returns from where an instruction loads the 8 bytes that the atom is which it makes with this index, if it is just
/// that.
pub fn loaded(instruction: &Instruction, index: u32) -> Option<&Address> {
    let part = usize::try_from(index.checked_sub(PARTS + 1)?).ok()?;
    let effect = instruction.effects().get(part / PARTS_OF_EFFECT)?;
    match effect.expressions().next()? {
        Expression::Load { address, width: WORD } if part.is_multiple_of(PARTS_OF_EFFECT) => Some(address),
        _ => None,
    }
}

/// An instruction that is being executed.
pub struct Step<'a> {
    instruction: &'a Instruction,
    /// What is known before it, and then after it.
    state: &'a mut State,
    /// Every atom that occurs in the states.
    atoms: &'a mut Atoms,
    known: &'a Known,
    temporaries: [Value; TEMPORARIES],
    /// Distinguishes the part of an expression that is being looked at.
    part: u32,
    /// Whether what is computed stays in the instruction: then no address escapes in it.
    is_compared: bool,
}

impl<'a> Step<'a> {
    /// Begins to execute an instruction in a state.
    pub fn new(instruction: &'a Instruction, state: &'a mut State, atoms: &'a mut Atoms, known: &'a Known) -> Self {
        let temporaries = [const { Value::constant(0) }; TEMPORARIES];
        Self { instruction, state, atoms, known, temporaries, part: PARTS, is_compared: false }
    }

    /// Executes the instruction; `callee` is what it calls, if anything.
    pub fn execute(mut self, callee: Callee) {
        if self.instruction.is_call() {
            return self.call(callee);
        }
        for (effect, part) in self.instruction.effects().iter().zip((PARTS..).step_by(PARTS_OF_EFFECT)) {
            self.part = part;
            self.apply(effect);
        }
    }

    /// Executes the instruction up to where it stores a word, and returns where it does, and what.
    pub fn stored_word(mut self) -> Option<(MemoryPlace, Value)> {
        for effect in self.instruction.effects() {
            if let Effect::Store { address, width: WORD, value } = effect {
                return Some((self.place(address), self.lane(value)?));
            }
            self.apply(effect);
        }
        None
    }

    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Let { temporary, value } => {
                let value = self.evaluate(value);
                if let Some(kept) = self.temporaries.get_mut(usize::from(*temporary)) {
                    *kept = value;
                }
            }
            Effect::Set { register, width, value } => {
                let value = self.evaluate(value);
                self.set(usize::from(*register), *width, value);
            }
            Effect::SetLane { vector, lane, value } => {
                self.escape_registers(value);
                match self.lane(value) {
                    Some(value) => self.state.lanes.insert((*vector, *lane), value),
                    None => self.state.lanes.remove(&(*vector, *lane)),
                };
            }
            Effect::Store { address, width, value } => self.store(address, *width, value),
            Effect::Push(value) => {
                let value = self.evaluate(value);
                self.push(value);
            }
            Effect::Compare { left, right, bits } => {
                self.is_compared = true;
                let (left, right) = (self.evaluate(left), self.evaluate(right));
                self.is_compared = false;
                self.state.flags = Flags::Comparison { left, right, bits: *bits };
            }
            Effect::CompareIf { test, left, right, bits, otherwise } => {
                let condition = self.state.condition(*test, self.atoms);
                self.apply(&Effect::Compare { left: left.clone(), right: right.clone(), bits: *bits });
                let then = std::mem::replace(&mut self.state.flags, Flags::Unknown);
                if let Some(condition) = condition {
                    let (then, otherwise) = (Box::new(then), otherwise.clone());
                    self.state.flags = Flags::Conditional { condition, then, otherwise };
                }
            }
            Effect::ZeroAndSign { of, bits } => {
                self.state.flags = Flags::ZeroAndSign { of: self.evaluate(of), bits: *bits };
            }
            Effect::Clobber(clobber) => self.clobber(*clobber),
            Effect::ClobberMemory { address, bytes } => self.clobber_memory(address, *bytes),
            Effect::Read { .. } => {}
        }
    }

    fn convention(&self) -> &'static Convention {
        self.atoms.convention()
    }

    fn set(&mut self, register: usize, width: u8, value: Value) {
        let value = match width {
            8 => value,
            4 => self.atoms.zero_extended(&value, 32),
            1 => {
                let byte = self.atoms.zero_extended(&value, 8);
                let rest = self.state.registers[register].clone();
                self.atoms.low_byte(byte, rest)
            }
            _ => self.opaque(register as u32),
        };
        self.state.registers[register] = value;
    }

    fn store(&mut self, address: &Address, width: u8, value: &Expression) {
        let place = self.place(address);
        let Some(value) = self.lane(value) else { return self.store_unknown(address, &place, width.into()) };
        // What lies relative to a frame pointer, or above what it points to, is a local variable, not an argument.
        let frame = self.convention().frame_pointer;
        let above = self.atoms.stack_offset(&self.state.registers[usize::from(frame)]);
        let is_local = |at| address.base == Some(frame) || above.is_some_and(|above| above <= at);
        if !matches!(place, MemoryPlace::Stack(at) if is_local(at)) {
            self.state.escape_value(&value, self.atoms);
        }
        match place {
            MemoryPlace::Stack(offset) => self.state.store_slot(offset, width, value),
            MemoryPlace::Global(_) => self.state.generation = self.instruction.address,
            MemoryPlace::SomewhereOnStack | MemoryPlace::Unknown => self.store_unknown(address, &place, 0),
        }
    }

    /// Takes a store of an unknown value into account, of `width` bytes if it is to a known place on the stack.
    fn store_unknown(&mut self, address: &Address, place: &MemoryPlace, width: i64) {
        match place {
            MemoryPlace::Stack(offset) => return self.state.overwrite_slots(*offset, width),
            // An array of any length is below the slots that only their names reach.
            MemoryPlace::SomewhereOnStack if address.base == Some(self.convention().stack_pointer) => {
                self.state.forget_slots(i64::MIN, self.atoms);
            }
            MemoryPlace::SomewhereOnStack => self.state.forget_all_slots(self.atoms),
            MemoryPlace::Global(_) | MemoryPlace::Unknown => {}
        }
        self.state.clobber_memory(self.instruction.address, self.atoms);
    }

    /// Takes into account that memory changes from an address on: as many bytes at most, if that is known.
    fn clobber_memory(&mut self, address: &Address, bytes: Option<u16>) {
        let place = self.place(address);
        let begin = self.address(address).filter(|_| bytes.is_none());
        let Some(begin) = begin else {
            return self.store_unknown(address, &place, bytes.map_or(i64::MAX, i64::from));
        };
        if let Some(lowest) = self.atoms.reach_on_stack(&begin) {
            self.state.forget_slots(lowest, self.atoms);
        }
        self.store_unknown(address, &MemoryPlace::Unknown, 0);
    }

    fn clobber(&mut self, clobber: Clobber) {
        // What is computed from an address on the stack may be one, too.
        self.hand_out(clobber.from);
        for number in numbers(clobber.registers) {
            self.state.registers[usize::from(number)] = self.opaque(number.into());
        }
        if clobber.vectors != 0 {
            self.state.lanes.retain(|(vector, _), _| clobber.vectors >> vector & 1 == 0);
        }
        if clobber.flags {
            self.state.flags = Flags::Unknown;
        }
    }

    /// Pushes a value, perhaps as an argument.
    fn push(&mut self, value: Value) {
        let pointer = self.convention().stack_pointer();
        let top = self.state.registers[pointer].offset(u64::from(WORD).wrapping_neg());
        self.state.registers[pointer] = top.clone();
        self.state.escape_value(&value, self.atoms);
        if let Some(offset) = self.atoms.stack_offset(&top) {
            self.state.store_slot(offset, WORD, value);
        }
    }

    fn call(&mut self, known: Callee) {
        let site = self.instruction.address;
        let callee = self.instruction.callee();
        let convention = self.convention();
        // What is below the stack pointer is gone. What a callee can find on the stack escaped when it was stored.
        if let Some(top) = self.atoms.stack_offset(&self.state.registers[convention.stack_pointer()]) {
            self.state.stack.retain(|at, _| *at >= top);
        }
        self.hand_out(convention.passed & known.reads);
        let is_preserved = |vector| convention.preserved_vectors & bit(vector) != 0;
        self.state.lanes.retain(|(vector, lane), _| *lane == 0 && is_preserved(*vector));
        for number in numbers(convention.caller_saved & known.writes) {
            self.state.registers[usize::from(number)] = self.opaque(number.into());
        }
        self.state.registers[convention.result()] = self.atoms.value(Atom::Call { site, callee });
        self.state.flags = Flags::Unknown;
        self.state.clobber_memory(site, self.atoms);
        for (offset, value) in self.known.calls.get(&site).into_iter().flatten() {
            self.state.store_slot(*offset, WORD, value.clone());
        }
    }

    /// Lets the addresses on the stack escape that are in registers.
    fn hand_out(&mut self, registers: RegisterSet) {
        for number in numbers(registers) {
            let value = self.state.registers[usize::from(number)].clone();
            self.state.escape_value(&value, self.atoms);
        }
    }

    /// Lets the addresses on the stack escape that are in registers of which a vector is made.
    fn escape_registers(&mut self, expression: &Expression) {
        expression.visit(&mut |part| {
            if let Expression::Register { number, .. } = part {
                self.hand_out(bit(*number));
            }
        });
    }
}
