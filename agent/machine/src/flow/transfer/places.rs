//! Where memory is, by an address expression in a state.

use evictscope_model::FileAddress;

use crate::flow::state::State;
use crate::flow::values::atoms::Atoms;
use crate::flow::values::value::Value;
use crate::ir::{Address, Index};
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
pub fn effective_address(atoms: &mut Atoms, state: &State, address: &Address) -> Option<Value> {
    if address.is_elsewhere {
        return None;
    }
    let mut sum = Value::constant(address.displacement);
    let indexes = address.base.map(|base| Index::whole(base, 1)).into_iter().chain(address.index);
    for Index { register, scale, half } in indexes {
        let whole = &state.registers[usize::from(register)];
        let lower = half.map(|is_signed| {
            let lower = atoms.zero_extended(whole, 32);
            if is_signed { atoms.sign_extended(&lower, 32) } else { lower }
        });
        sum = sum.plus(lower.as_ref().unwrap_or(whole), scale.into());
    }
    atoms.is_short(&sum).then_some(sum)
}
