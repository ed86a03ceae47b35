//! Counters of `server` by what INFO prints: the arguments of one call that formats text.
//!
//! `genRedisInfoString()` passes the members whose names INFO shows to a function like `printf`, in
//! the order of the format: the conversion behind `evicted_keys:` tells which argument
//! is `stat_evictedkeys`. The System V ABI says where each argument is.

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::code::graph::FunctionCode;
use crate::code::registers::RSP;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::flow::state::State;
use crate::item::Member;

/// Names of the function that makes the text of INFO, newest first.
const INFO_FUNCTIONS: [&str; 2] = ["genValkeyInfoString", "genRedisInfoString"];
/// What INFO calls a member, and the member.
const SHOWN: [(&str, Member); 3] = [
    ("total_commands_processed", Member::StatNumcommands),
    ("expired_keys", Member::StatExpiredkeys),
    ("evicted_keys", Member::StatEvictedkeys),
];
/// Longest format that is looked at, bytes.
const MAX_FORMAT: usize = 16 << 10;
/// x86-64 number of the register of the format.
const RSI: usize = 6;
/// x86-64 numbers of the registers of the arguments that follow text and format.
const ARGUMENTS: [usize; 4] = [2, 1, 8, 9];
/// How many floating-point arguments are passed in registers.
const FLOAT_REGISTERS: usize = 8;

/// Returns the members that INFO prints, with their addresses. A member that is not printed as it is
/// is missing.
pub fn shown_members(image: &Image<'_>) -> Vec<(Member, FileAddress)> {
    let function = INFO_FUNCTIONS.iter().find_map(|name| image.function(name));
    let code = function.and_then(|symbol| FunctionCode::decode(image, symbol.address).ok());
    let Some(code) = code else { return Vec::new() };
    let passing = code.blocks.ids().find_map(|block| {
        let instructions = &code.blocks[block].instructions;
        let format = instructions.iter().find_map(|instruction| {
            let address = address_in(instruction)?;
            Some((address, format_at(image, address)?))
        });
        Some((block, format?))
    });
    let Some((block, (address, format))) = passing else {
        return Vec::new();
    };
    let mut execution = Execution::run(&code);
    let states = execution.states_in(block);
    let mut calls = code.blocks[block]
        .instructions
        .iter()
        .zip(states)
        .filter(|(call, _)| call.flow_control() == FlowControl::Call);
    let call = calls.find(|(_, state)| state.registers[RSI].as_constant() == Some(address.get()));
    call.map(|(_, state)| arguments(&mut execution, &state, &format))
        .unwrap_or_default()
}

/// Returns the address that an instruction loads, as a number or relative to its own.
fn address_in(instruction: &Instruction) -> Option<FileAddress> {
    let address = match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address())
        }
        Mnemonic::Mov => instruction.try_immediate(1).ok(),
        _ => None,
    };
    address.map(FileAddress::new)
}

/// Returns the format at an address, where it shows all the members.
fn format_at(image: &Image<'_>, address: FileAddress) -> Option<String> {
    let bytes = image
        .bytes_at(address)
        .filter(|_| !image.is_writable(address))?;
    let length = bytes.iter().take(MAX_FORMAT).position(|byte| *byte == 0)?;
    let format = std::str::from_utf8(bytes.get(..length)?).ok()?;
    SHOWN
        .iter()
        .all(|(shown, _)| place_in(format, shown).is_some())
        .then(|| format.to_owned())
}

/// Returns the place of the conversion whose value is called `shown`.
fn place_in(format: &str, shown: &str) -> Option<usize> {
    let label = format!("\n{shown}:%");
    format.find(&label).map(|at| at + label.len() - 1)
}

fn arguments(
    execution: &mut Execution<'_>,
    state: &State,
    format: &str,
) -> Vec<(Member, FileAddress)> {
    let found = SHOWN.iter().filter_map(|(shown, member)| {
        let argument = argument_at(format, place_in(format, shown)?)?;
        let value = match argument {
            Argument::Register(index) => state.registers[*ARGUMENTS.get(index)?].clone(),
            Argument::Stack(index) => {
                let top = execution.atoms.stack_offset(&state.registers[RSP])?;
                let slot = top.checked_add(8 * i64::try_from(index).ok()?)?;
                match state.stack.get(&slot) {
                    Some((value, 8)) => value.clone(),
                    _ => return None,
                }
            }
        };
        Some((*member, execution.atoms.as_global(&value)?))
    });
    found.collect()
}

/// Where an argument is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    /// In one of [`ARGUMENTS`].
    Register(usize),
    /// At this place above the stack pointer at the call, in words of 8 bytes.
    Stack(usize),
}

/// Returns the argument of the conversion at `place`, an integer. `None` where the format has
/// conversions that are not understood.
fn argument_at(format: &str, place: usize) -> Option<Argument> {
    let (mut integers, mut floats, mut on_stack) = (0, 0, 0);
    let mut rest = 0;
    while let Some(found) = format.get(rest..)?.find('%') {
        let at = rest + found;
        let conversion = format.get(at + 1..)?;
        let modifiers = conversion.find(|letter: char| !"0123456789.lzhjt-+ #".contains(letter))?;
        let letter = conversion.get(modifiers..)?.chars().next()?;
        rest = at + 1 + modifiers + letter.len_utf8();
        let argument = match letter {
            '%' => continue,
            'd' | 'i' | 'u' | 'x' | 'X' | 'c' | 's' | 'p' if integers < ARGUMENTS.len() => {
                integers += 1;
                Argument::Register(integers - 1)
            }
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' if floats < FLOAT_REGISTERS => {
                floats += 1;
                continue;
            }
            'd' | 'i' | 'u' | 'x' | 'X' | 'c' | 's' | 'p' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
                on_stack += 1;
                Argument::Stack(on_stack - 1)
            }
            _ => return None,
        };
        if at == place {
            return Some(argument);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Argument, argument_at, place_in};

    #[test]
    fn arguments_are_counted_by_kind() {
        let format = "# Stats\r\na:%lld\r\nb:%.2f\r\nc:%s%%\r\nd:%zu\r\ne:%u\r\nf:%d\r\ng:%ld\r\n";
        let argument = |name| argument_at(format, place_in(format, name)?);
        assert_eq!(argument("a"), Some(Argument::Register(0)));
        assert_eq!(argument("c"), Some(Argument::Register(1)));
        assert_eq!(argument("e"), Some(Argument::Register(3)));
        assert_eq!(argument("f"), Some(Argument::Stack(0)));
        assert_eq!(argument("g"), Some(Argument::Stack(1)));
        assert_eq!(argument("h"), None);
        assert_eq!(argument_at("%*d\r\na:%d", 5), None);
    }

    #[test]
    fn floats_beyond_the_registers_take_places_on_the_stack() {
        let format = format!("{}%d%d%d%d\na:%d", "%f".repeat(9));
        let place = place_in(&format, "a");
        let argument = place.and_then(|place| argument_at(&format, place));
        assert_eq!(argument, Some(Argument::Stack(1)));
    }
}
