//! One instruction and the state that it changes: what its operands hold, and what it writes.

use std::collections::HashMap;

use crate::ir::Instruction;
use evictscope_model::FileAddress;
use iced_x86::{OpKind, Register};

use crate::code::instruction::{RSP, address, general_register, is_high_byte, operand_bits};
use crate::flow::state::State;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::value::Value;

/// What is known about single calls and loads.
#[derive(Default)]
pub struct KnownEffects {
    /// By the address of a call, what it leaves in stack slots of 8 bytes, by their offset from the stack
    /// pointer at the caller's entry.
    pub calls: HashMap<FileAddress, Vec<(i64, Value)>>,
    /// The numbers that globals hold, by their address and width in bytes.
    pub loads: HashMap<(FileAddress, u8), u64>,
}

/// Distinguishes what one instruction makes opaque: its results have the numbers of registers, the content of operand i
/// is this plus i.
const OPERAND: u32 = 64;

/// Where a memory operand points.
pub enum MemoryPlace {
    /// A stack slot, by its offset from the stack pointer at entry.
    Stack(i64),
    Global(FileAddress),
    /// Somewhere on the stack.
    SomewhereOnStack,
    /// Elsewhere, or on the stack by an address that escaped.
    Unknown,
}

/// Finds out where an instruction's memory operand points.
pub fn place(atoms: &mut Atoms, state: &State, instruction: &Instruction) -> MemoryPlace {
    if instruction.segment_prefix() != Register::None {
        return MemoryPlace::Unknown;
    }
    if let Some(address) = effective_address(atoms, state, instruction) {
        if let Some(address) = address.as_constant() {
            return MemoryPlace::Global(FileAddress::new(address));
        }
        if let Some(offset) = atoms.stack_offset(&address) {
            return MemoryPlace::Stack(offset);
        }
    }
    let may_be_on_stack = |register| {
        let number = general_register(register);
        number.is_some_and(|number| atoms.may_be_on_stack(&state.registers[number]))
    };
    if may_be_on_stack(instruction.memory_base()) || may_be_on_stack(instruction.memory_index()) {
        MemoryPlace::SomewhereOnStack
    } else {
        MemoryPlace::Unknown
    }
}

/// Computes the address of the memory operand, without its segment; `None` if it uses a register other than a whole
/// general one, or is too long a sum.
pub fn effective_address(atoms: &Atoms, state: &State, instruction: &Instruction) -> Option<Value> {
    let mut address = Value::constant(instruction.memory_displacement64());
    for (register, scale) in
        [(instruction.memory_base(), 1), (instruction.memory_index(), instruction.memory_index_scale())]
    {
        if !matches!(register, Register::None | Register::RIP) {
            let number = general_register(register).filter(|_| register.size() == 8)?;
            address = address.plus(&state.registers[number], u64::from(scale));
        }
    }
    atoms.is_short(&address).then_some(address)
}

/// An instruction that is being executed.
pub struct Step<'a> {
    pub instruction: &'a Instruction,
    /// What is known before it, and then after it.
    pub state: &'a mut State,
    /// Every atom that occurs in the states.
    pub atoms: &'a mut Atoms,
    pub known: &'a KnownEffects,
}

impl Step<'_> {
    /// Returns an operand's value. Unless the operand is 64 or 32 bits wide, the bits past its width mean nothing.
    pub fn read(&mut self, operand: u32) -> Value {
        match self.instruction.op_kind(operand) {
            OpKind::Register => self.read_register(operand),
            OpKind::Memory => self.load(operand),
            _ => match self.instruction.try_immediate(operand) {
                Ok(immediate) => Value::constant(immediate),
                Err(_) => self.opaque(OPERAND + operand),
            },
        }
    }

    /// Returns the number that an operand is, an immediate or a register.
    pub fn number(&mut self, operand: u32) -> Option<u64> {
        let is_memory = self.instruction.op_kind(operand) == OpKind::Memory;
        (!is_memory).then(|| self.read(operand))?.as_constant()
    }

    fn read_register(&mut self, operand: u32) -> Value {
        let register = self.instruction.op_register(operand);
        match general_register(register) {
            Some(number) if !is_high_byte(register) => {
                let bits = operand_bits(self.instruction, operand);
                self.atoms.zero_extended(&self.state.registers[number], bits)
            }
            _ => self.opaque(OPERAND + operand),
        }
    }

    fn load(&mut self, operand: u32) -> Value {
        let width = self.memory_width();
        match self.place() {
            MemoryPlace::Stack(offset) => self.load_slot(offset, width),
            MemoryPlace::Global(address) if matches!(width, 1 | 2 | 4 | 8) => self.load_global(address, width),
            _ => self.opaque_bytes(OPERAND + operand, width),
        }
    }

    pub fn load_global(&mut self, address: FileAddress, width: u8) -> Value {
        match self.known.loads.get(&(address, width)) {
            Some(number) => Value::constant(*number),
            None => self.atoms.value(Atom::Global { address, width, generation: self.state.generation }),
        }
    }

    /// Loads a stack slot.
    pub fn load_slot(&mut self, offset: i64, width: u8) -> Value {
        if let Some((value, stored)) = self.state.stack.get(&offset)
            && *stored >= width
        {
            return self.atoms.zero_extended(value, width.saturating_mul(8));
        }
        let value = self.opaque_bytes(96, width);
        self.state.store_slot(offset, width, value.clone());
        value
    }

    /// Writes an operand.
    pub fn write(&mut self, operand: u32, value: Value) {
        match self.instruction.op_kind(operand) {
            OpKind::Register => self.write_register(operand, value),
            OpKind::Memory => {
                let place = self.place();
                self.hand_over(&value, &place);
                self.store(&place, value);
            }
            _ => {}
        }
    }

    /// Lets a value escape if it is stored where others may find it.
    pub fn hand_over(&mut self, value: &Value, place: &MemoryPlace) {
        // What lies relative to a frame pointer is a local variable, not an argument.
        let is_local = self.instruction.memory_base() == Register::RBP;
        if !is_local || !matches!(place, MemoryPlace::Stack(_)) {
            self.state.escape_value(value, self.atoms);
        }
    }

    /// Lets addresses on the stack escape if they are in general registers among the operands.
    pub fn escape_operands(&mut self) {
        for operand in 0..self.instruction.op_count() {
            let number = general_register(self.instruction.op_register(operand));
            if let Some(number) = number
                && self.instruction.op_kind(operand) == OpKind::Register
            {
                let value = self.state.registers[number].clone();
                self.state.escape_value(&value, self.atoms);
            }
        }
    }

    fn write_register(&mut self, operand: u32, value: Value) {
        let register = self.instruction.op_register(operand);
        let Some(number) = general_register(register) else {
            self.state.escape_value(&value, self.atoms);
            return;
        };
        self.state.registers[number] = match register.size() {
            8 => value,
            4 => self.atoms.zero_extended(&value, 32),
            1 if !is_high_byte(register) => {
                let byte = self.atoms.zero_extended(&value, 8);
                let rest = self.state.registers[number].clone();
                self.atoms.low_byte(byte, rest)
            }
            _ => self.opaque(32),
        };
    }

    fn store(&mut self, place: &MemoryPlace, value: Value) {
        match place {
            MemoryPlace::Stack(offset) => {
                let width = self.memory_width();
                self.state.store_slot(*offset, width, value);
            }
            MemoryPlace::Global(_) => self.state.generation = address(self.instruction),
            MemoryPlace::SomewhereOnStack | MemoryPlace::Unknown => self.store_unknown(place, 0),
        }
    }

    /// Takes a store of an unknown value into account, of `width` bytes if it is to a known place on the stack.
    pub fn store_unknown(&mut self, place: &MemoryPlace, width: i64) {
        match place {
            MemoryPlace::Stack(offset) => self.state.overwrite_slots(*offset, width),
            // An array of any length is below the slots that only their names reach.
            MemoryPlace::SomewhereOnStack if self.instruction.memory_base() == Register::RSP => {
                self.state.forget_slots(i64::MIN, self.atoms);
            }
            MemoryPlace::SomewhereOnStack => self.state.forget_all_slots(self.atoms),
            MemoryPlace::Global(_) | MemoryPlace::Unknown => {}
        }
        if !matches!(place, MemoryPlace::Stack(_)) {
            self.state.clobber_memory(address(self.instruction), self.atoms);
        }
    }

    /// Pushes a value, perhaps as an argument.
    pub fn push(&mut self, value: Value) {
        let top = self.state.registers[RSP].offset(8_u64.wrapping_neg());
        self.state.registers[RSP] = top.clone();
        self.state.escape_value(&value, self.atoms);
        if let Some(offset) = self.atoms.stack_offset(&top) {
            self.state.store_slot(offset, 8, value);
        }
    }

    pub fn pop(&mut self) -> Value {
        let top = self.state.registers[RSP].clone();
        self.state.registers[RSP] = top.offset(8);
        if let Some(offset) = self.atoms.stack_offset(&top) { self.load_slot(offset, 8) } else { self.opaque(0) }
    }

    pub fn address(&mut self) -> Option<Value> {
        effective_address(self.atoms, self.state, self.instruction)
    }

    /// Finds out where the memory operand points.
    pub fn place(&mut self) -> MemoryPlace {
        place(self.atoms, self.state, self.instruction)
    }

    /// Makes a value about which nothing is known, as result number `index` of the instruction.
    pub fn opaque(&mut self, index: u32) -> Value {
        self.atoms.value(Atom::Opaque { address: address(self.instruction), index })
    }

    fn opaque_bytes(&mut self, index: u32, bytes: u8) -> Value {
        let value = self.opaque(index);
        self.atoms.zero_extended(&value, bytes.saturating_mul(8))
    }

    fn memory_width(&self) -> u8 {
        u8::try_from(self.instruction.memory_size().size()).unwrap_or(0)
    }
}
