//! Counters of `server` by what INFO prints: the arguments of one call that formats text.
//!
//! `genRedisInfoString()` passes the members whose names INFO shows to a function like `printf`, in
//! the order of the format: the conversion behind `evicted_keys:` tells which argument
//! is `stat_evictedkeys`. The System V ABI says where each argument is, and [`Origins`] where it comes
//! from. The function is found by the format, so it needs no name.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::code::block::InstructionId;
use crate::code::graph::FunctionCode;
use crate::code::instruction::{callee, is_call};
use crate::code::references;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::item::Member;
use crate::names::functions_of;

use super::origin::{Origin, Origins};

/// What INFO calls a member, and the member.
const SHOWN: [(&str, Member); 3] = [
    ("total_commands_processed", Member::StatNumcommands),
    ("expired_keys", Member::StatExpiredkeys),
    ("evicted_keys", Member::StatEvictedkeys),
];
/// The conversions of integers of 8 bytes.
const WHOLE: [&str; 6] = ["%lld", "%llu", "%ld", "%lu", "%zd", "%zu"];
/// Longest format that is looked at, bytes.
const MAX_FORMAT: usize = 16 << 10;
/// Most functions that are looked at: one makes INFO, and compilers make few copies of it.
const MAX_FUNCTIONS: usize = 8;
/// x86-64 number of the register of the format.
const RSI: usize = 6;
/// x86-64 numbers of the registers of the arguments that follow text and format.
const ARGUMENTS: [usize; 4] = [2, 1, 8, 9];
/// How many floating-point arguments are passed in registers.
const FLOAT_REGISTERS: usize = 8;

/// What INFO says.
#[derive(Debug, Default)]
pub struct Info {
    /// The members that it prints as they are, with their addresses.
    pub shown: BTreeMap<Member, FileAddress>,
    /// The functions that the one calls that makes its text.
    pub callees: Vec<FileAddress>,
}

/// Finds out what INFO prints. A member is missing that is not printed as it is, or that two calls
/// print from different places.
pub fn info(image: &Image<'_>) -> Info {
    let formats: Vec<Range<FileAddress>> = SHOWN
        .iter()
        .flat_map(|(shown, _)| image.texts_with(label(shown).as_bytes(), MAX_FORMAT))
        .collect();
    let frames = references::find(image, &formats).into_iter();
    let frames: Vec<_> = frames.map(|reference| reference.frame).collect();
    let mut functions = functions_of(image, &frames);
    functions.truncate(MAX_FUNCTIONS);
    let mut printed: BTreeMap<Member, Vec<Option<FileAddress>>> = BTreeMap::new();
    let mut info = Info::default();
    for function in functions {
        let Ok(code) = FunctionCode::decode(image, function) else {
            continue;
        };
        let calls = code.blocks.iter().flat_map(|block| &block.instructions);
        info.callees.extend(calls.filter_map(callee));
        for (member, address) in printed_by(image, &code, &formats) {
            printed.entry(member).or_default().push(address);
        }
    }
    info.callees.sort_unstable();
    info.callees.dedup();
    let agreed = printed.into_iter().filter_map(|(member, found)| {
        let first = *found.first()?;
        let agree = found.iter().all(|other| *other == first);
        Some((member, first.filter(|_| agree)?))
    });
    info.shown = agreed.collect();
    info
}

/// Returns what a function prints of the members, once for each call: from where, if that is known.
fn printed_by(
    image: &Image<'_>,
    code: &FunctionCode,
    formats: &[Range<FileAddress>],
) -> Vec<(Member, Option<FileAddress>)> {
    let mut origins = Origins::new(code);
    let mut found = Vec::new();
    for (id, block) in code.blocks.entries() {
        for (index, instruction) in block.instructions.iter().enumerate() {
            let is_tail_call = block.leaves && index + 1 == block.instructions.len();
            if !is_call(instruction) && !is_tail_call {
                continue;
            }
            let call = id.instruction(index);
            // A tail call leaves the return address on top.
            let top = if is_tail_call { 8 } else { 0 };
            let Some(Origin::Number(format)) = origins.of_register(call, RSI) else {
                continue;
            };
            let format = FileAddress::new(format);
            if !formats.iter().any(|known| known.contains(&format)) {
                continue;
            }
            let text = image.text_at(format, MAX_FORMAT);
            let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) else {
                continue;
            };
            for (shown, member) in SHOWN {
                if let Some(place) = place_in(text, shown) {
                    let argument = argument_at(text, place).filter(|_| is_whole(text, place));
                    let address =
                        argument.and_then(|argument| global_in(&mut origins, call, top, argument));
                    let address = address.filter(|address| image.is_writable(*address));
                    found.push((member, address));
                }
            }
        }
    }
    found
}

/// Returns the address of the global that a call passes as an argument, those on the stack from `top`
/// above the stack pointer on.
fn global_in(
    origins: &mut Origins<'_>,
    call: InstructionId,
    top: u64,
    argument: Argument,
) -> Option<FileAddress> {
    let origin = match argument {
        Argument::Register(index) => origins.of_register(call, *ARGUMENTS.get(index)?),
        Argument::Stack(index) => origins.of_stack(call, top + 8 * index as u64),
    };
    match origin? {
        Origin::Global(address) => Some(address),
        Origin::Number(_) => None,
    }
}

/// Returns what introduces the value of `shown` in a format.
fn label(shown: &str) -> String {
    format!("\n{shown}:%")
}

/// Returns the place of the conversion whose value is called `shown`.
fn place_in(format: &str, shown: &str) -> Option<usize> {
    let label = label(shown);
    format.find(&label).map(|at| at + label.len() - 1)
}

/// Returns whether the conversion at `place` prints all 8 bytes of its argument.
fn is_whole(format: &str, place: usize) -> bool {
    let conversion = format.get(place..).unwrap_or_default();
    WHOLE.iter().any(|whole| conversion.starts_with(whole))
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
mod tests;
