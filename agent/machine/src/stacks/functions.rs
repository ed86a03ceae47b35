//! What the functions of a file are called.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::budget::Budget;
use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;

/// Memory for one function with its name, in bytes.
const BYTES: usize = 128;
/// The longest name to keep, in bytes.
const MAX_NAME: usize = 200;

/// The first byte of a relative call; the 4 bytes of the distance follow.
const CALL: u8 = 0xe8;
/// Bytes of such a call.
const CALL_BYTES: u64 = 5;
/// The most calls to keep for one function.
const MAX_CALLS: usize = 32;

/// A function, or a part of one that the compiler moved elsewhere.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name; for a part, that of its function.
    pub name: String,
    /// Its number, if it is one of [`Names::traced`].
    pub traced: Option<usize>,
}

/// A function that is traced: where it begins, its name, and its number.
pub type Traced = (FileAddress, &'static str, usize);

/// What is known about the functions of an executable besides the names in its file.
pub trait Names {
    /// Returns the functions that are traced. May add to `image` what else is known about it.
    fn traced(&self, image: &mut Image<'_>) -> Vec<Traced>;

    /// Returns where functions begin for which the file may have no name, and what to call them then.
    fn nameless(&self, image: &Image<'_>) -> Vec<(FileAddress, String)>;
}

impl<T: Names> Names for Arc<T> {
    fn traced(&self, image: &mut Image<'_>) -> Vec<Traced> {
        T::traced(self, image)
    }

    fn nameless(&self, image: &Image<'_>) -> Vec<(FileAddress, String)> {
        T::nameless(self, image)
    }
}

/// Returns the functions with names, by their addresses.
pub fn functions(
    image: &Image<'_>,
    traced: &[Traced],
    names: Option<&dyn Names>,
) -> HashMap<FileAddress, Function> {
    let mut found = HashMap::new();
    let mut add = |address: FileAddress, name: String, traced, budget: &Budget| {
        if budget.keep(BYTES + name.len()) {
            found.entry(address).or_insert(Function { name, traced });
        }
    };
    // These first: their names are certain.
    for (address, name, index) in traced {
        for part in iter::once(*address).chain(parts(image, *address)) {
            add(part, (*name).to_owned(), Some(*index), &image.budget);
        }
    }
    for (address, name) in image.function_names() {
        if name.len() <= MAX_NAME {
            add(address, own_name(name).to_owned(), None, &image.budget);
        }
    }
    for (address, name) in names.into_iter().flat_map(|names| names.nameless(image)) {
        add(address, name, None, &image.budget);
    }
    found
}

/// Returns the address after each instruction that looks like a call of a traced function, by its number.
pub fn returns(image: &Image<'_>, traced: &[Traced]) -> HashMap<usize, Vec<FileAddress>> {
    let mut found: HashMap<usize, Vec<FileAddress>> = HashMap::new();
    let traced: HashMap<FileAddress, usize> = (traced.iter())
        .map(|(address, _, index)| (*address, *index))
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

/// Returns where a function's parts outside its entry's frame begin, according to its jumps.
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

/// Returns a function's name without what compilers append for a part or a clone. A part that was made a function of its own
/// (`.part`) keeps its suffix: both are on the stack.
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
            ("qsort_r", "qsort_r"),
            ("qsort_r.cold", "qsort_r"),
            ("msort_with_tmp.constprop.0.cold", "msort_with_tmp"),
            ("rehash.isra.0", "rehash"),
            ("msort_with_tmp.part.0", "msort_with_tmp.part.0"),
            (".cold", ".cold"),
        ] {
            assert_eq!(own_name(name), own);
        }
    }
}
