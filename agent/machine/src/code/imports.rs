//! What a call calls, by name: in this file, or in a shared library through a slot that the loader fills.

use evictscope_model::FileAddress;

use crate::elf::image::Image;
use crate::ir::{Flow, Instruction};

/// What functions call at their entry for a profiler (gcc's `-pg`). It saves every register.
const HOOKS: [&str; 3] = ["mcount", "_mcount", "__fentry__"];
/// The most instructions that the linker puts between a call and its slot.
const STUB_LENGTH: usize = 2;

/// Returns the name of the function that an instruction calls, if it calls one that has a name.
pub fn callee_name<'data>(image: &Image<'data>, call: &Instruction) -> Option<&'data str> {
    match call.flow {
        Flow::Call(function) => {
            image.symbols.function_name(function).or_else(|| image.import(slot_of_stub(image, function)?))
        }
        Flow::IndirectCall(_) => image.import(call.slot()?),
        _ => None,
    }
}

/// Returns whether an instruction calls something that changes neither registers nor the function's memory.
pub fn is_hook(image: &Image<'_>, instruction: &Instruction) -> bool {
    callee_name(image, instruction).is_some_and(|name| HOOKS.contains(&name))
}

/// Returns the slot that the code at an address jumps through, perhaps after an instruction that does nothing.
fn slot_of_stub(image: &Image<'_>, address: FileAddress) -> Option<FileAddress> {
    image.budget.spend(STUB_LENGTH as u64);
    let jump = image.instructions_at(address).take(STUB_LENGTH).find(|instruction| !instruction.does_nothing())?;
    jump.slot().filter(|_| matches!(jump.flow, Flow::IndirectJump(_)))
}

/// Their names.
const FUNCTIONS: [&str; 3] = ["abort", "exit", "__stack_chk_fail"];

/// The prefix of the functions that report the address sanitizer's findings; those that end with [`GOES_ON`] return.
const REPORTS: &str = "__asan_report_";
const GOES_ON: &str = "_noabort";

/// Returns whether a function of this name does not return.
pub fn is_named(name: &str) -> bool {
    let is_report = name.starts_with(REPORTS) && !name.ends_with(GOES_ON);
    is_report || FUNCTIONS.contains(&name)
}
