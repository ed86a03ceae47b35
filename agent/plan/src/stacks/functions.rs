//! What the functions of a file are called.

use std::collections::HashMap;

use crate::budget::Budget;
use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::plan::ProbePlan;
use crate::traced::named::commands::CommandTable;

/// Memory for one function with its name, bytes.
const BYTES: usize = 128;
/// Longest name that is kept, in bytes.
const MAX_NAME: usize = 200;

/// The first byte of a call to a distance, which has 4 bytes.
const CALL: u8 = 0xe8;
/// Bytes of such a call.
const CALL_BYTES: u64 = 5;
/// Most calls of one function that are kept. A server calls `performEvictions()` at five places.
const MAX_CALLS: usize = 32;

/// A function, or a part of one that the compiler moved elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, where it is known; that of the function, where this is a part of one.
    pub name: String,
    /// Its number among the traced functions, where it is one of them.
    pub traced: Option<usize>,
}

/// The functions with names, by where they begin.
pub fn functions(image: &Image<'_>, plan: Option<&ProbePlan>) -> HashMap<FileAddress, Function> {
    let mut found = HashMap::new();
    let mut add = |address: FileAddress, name: String, traced, budget: &Budget| {
        if budget.keep(BYTES + name.len()) {
            found.entry(address).or_insert(Function { name, traced });
        }
    };
    // Those of the plan first: what they are called and what they are is certain.
    for function in plan.into_iter().flat_map(|plan| &plan.functions) {
        let traced = Some(function.kind.index);
        add(
            function.address,
            function.name.to_owned(),
            traced,
            &image.budget,
        );
        for part in parts(image, function.address) {
            add(part, function.name.to_owned(), traced, &image.budget);
        }
    }
    for (address, name) in image.function_names() {
        if name.len() <= MAX_NAME {
            add(address, own_name(name).to_owned(), None, &image.budget);
        }
    }
    if plan.is_some() {
        let mut commands: HashMap<FileAddress, Vec<String>> = HashMap::new();
        let table = CommandTable::find(image);
        for (address, name) in table.iter().flat_map(CommandTable::all) {
            commands
                .entry(address)
                .or_default()
                .push(name.to_uppercase());
        }
        // The function's name is mostly that of the command, but not always. This is what is certain.
        for (address, names) in commands {
            let name = format!("command {}", names.join(", "));
            add(address, name, None, &image.budget);
        }
    }
    found
}

/// Returns what is behind each instruction that looks like a call of a traced function, by its number.
pub fn returns(image: &Image<'_>, plan: Option<&ProbePlan>) -> HashMap<usize, Vec<FileAddress>> {
    let mut found: HashMap<usize, Vec<FileAddress>> = HashMap::new();
    let traced: HashMap<FileAddress, usize> = (plan.into_iter())
        .flat_map(|plan| &plan.functions)
        .map(|function| (function.address, function.kind.index))
        .collect();
    if traced.is_empty() {
        return found;
    }
    for (begin, code) in image.code() {
        if !image.budget.spend(1 + code.len() as u64 / 16) {
            break;
        }
        for at in memchr::memchr_iter(CALL, code) {
            let distance = code.get(at + 1..).and_then(|rest| rest.first_chunk());
            let Some(distance) = distance.map(|bytes| i32::from_le_bytes(*bytes)) else {
                break;
            };
            let behind = begin.wrapping_add(at as u64 + CALL_BYTES);
            let target = behind.get().wrapping_add_signed(distance.into());
            if let Some(index) = traced.get(&FileAddress::new(target)) {
                let all = found.entry(*index).or_default();
                if all.len() < MAX_CALLS {
                    all.push(behind);
                }
            }
        }
    }
    found
}

/// Returns where the parts of a function begin that are not at its entry, by its jumps.
fn parts(image: &Image<'_>, function: FileAddress) -> Vec<FileAddress> {
    let Ok(code) = FunctionCode::decode(image, function) else {
        return Vec::new();
    };
    let blocks = code.blocks.iter().map(|block| block.address());
    let entries = blocks.filter_map(|block| image.frames.at(block));
    let others = entries.filter(|entry| entry.start != function && !entry.is_entry);
    let mut starts: Vec<FileAddress> = others.map(|entry| entry.start).collect();
    starts.dedup();
    starts
}

/// Returns the name of a function without what compilers append to a part or a clone of it. What was made a function of its
/// own (`.part`) keeps that: both are on the stack.
fn own_name(name: &str) -> &str {
    let suffixes = [".cold", ".constprop", ".isra", ".lto_priv"];
    let ends = suffixes.iter().filter_map(|suffix| name.find(suffix));
    let end = ends.filter(|end| *end > 0).min();
    end.map_or(name, |end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::own_name;

    #[test]
    fn a_part_has_the_name_of_its_function() {
        for (name, own) in [
            ("performEvictions", "performEvictions"),
            ("performEvictions.cold", "performEvictions"),
            ("dictGenericDelete.constprop.0.cold", "dictGenericDelete"),
            ("rehash.isra.0", "rehash"),
            ("serverLogRaw.part.0", "serverLogRaw.part.0"),
            (".cold", ".cold"),
        ] {
            assert_eq!(own_name(name), own);
        }
    }
}
