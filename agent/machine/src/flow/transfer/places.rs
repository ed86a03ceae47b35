//! Where memory is, by an address expression in a state.

use evictscope_model::FileAddress;

use crate::flow::state::State;
use crate::flow::values::atoms::Atoms;
use crate::flow::values::value::Value;
use crate::ir::Address;
use crate::isa::numbers;

/// Where an address points.
pub enum MemoryPlace {
    /// A stack slot, by its offset from the stack pointer at entry.
    Stack(i64),
    Global(FileAddress),
    /// Somewhere on the stack.
    SomewhereOnStack,
    /// Elsewhere, or on the stack by an address that escaped.
    Unknown,
}

/// Finds out where an address points.
pub fn place(atoms: &mut Atoms, state: &State, address: &Address) -> MemoryPlace {
    if let Some(address) = effective_address(atoms, state, address) {
        if let Some(address) = address.as_constant() {
            return MemoryPlace::Global(FileAddress::new(address));
        }
        if let Some(offset) = atoms.stack_offset(&address) {
            return MemoryPlace::Stack(offset);
        }
    }
    let mut registers = numbers(address.registers()).map(|number| &state.registers[usize::from(number)]);
    if registers.any(|value| atoms.may_be_on_stack(value)) {
        MemoryPlace::SomewhereOnStack
    } else {
        MemoryPlace::Unknown
    }
}

/// Computes an address; `None` if it is relative to something that is not known, or too long a sum.
pub fn effective_address(atoms: &Atoms, state: &State, address: &Address) -> Option<Value> {
    if address.is_elsewhere {
        return None;
    }
    let mut sum = Value::constant(address.displacement);
    for (register, scale) in address.base.map(|base| (base, 1)).into_iter().chain(address.index) {
        sum = sum.plus(&state.registers[usize::from(register)], scale.into());
    }
    atoms.is_short(&sum).then_some(sum)
}
