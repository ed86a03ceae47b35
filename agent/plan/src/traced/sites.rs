//! Probe sites: the first instruction that every call passes, and the cheapest one with everything in
//! reach.

use iced_x86::{Formatter as _, GasFormatter, Instruction};

use crate::code::emulation;
use crate::code::graph::FunctionCode;
use crate::code::instruction::address;
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::flow::recipe::{Operand, Reach, Recipe};
use crate::flow::state::State;
use crate::flow::value::Value;
use crate::plan::Site;

/// A point where an inner site could be.
pub struct Candidate {
    /// The instruction that the probe would sit on.
    pub instruction: Instruction,
    pub state: State,
    /// Whether only inner calls come here.
    pub exclusive: bool,
}

/// Returns the site at an instruction; `None` where it is not in the file.
pub fn site(image: &Image<'_>, instruction: &Instruction) -> Option<Site> {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    // As objdump writes numbers.
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_displacement_leading_zeros(false);
    formatter.format(instruction, &mut text);
    let address = address(instruction);
    Some(Site {
        address,
        file_offset: image.file_offset(address)?,
        instruction: text,
        emulated: emulation::is_emulated(instruction),
    })
}

/// Returns the first instruction that the kernel emulates, of those that every call executes before
/// the stack pointer moves; else the first of all that can be probed.
pub fn entry(code: &FunctionCode) -> Option<&Instruction> {
    let instructions = &code.blocks.first()?.instructions;
    for instruction in instructions {
        if emulation::is_emulated(instruction) && instruction.is_stack_instruction() {
            return Some(instruction);
        }
        if instruction.stack_pointer_increment() != 0 {
            break;
        }
    }
    let mut instructions = instructions.iter();
    instructions.find(|own| !emulation::is_long_nop(own))
}

/// Returns the cheapest candidate of those with the most of `wanted` in reach, and how to compute each
/// of them there. `last_resort` is an operand that is in reach everywhere, with its value.
pub fn cheapest(
    execution: &mut Execution<'_>,
    candidates: Vec<Candidate>,
    wanted: &[&Value],
    last_resort: (&Operand, &Value),
) -> Option<(Instruction, Vec<Option<Recipe>>)> {
    let candidates = candidates.into_iter();
    let candidates = candidates.filter(|own| !emulation::is_long_nop(&own.instruction));
    let with_recipes = candidates.map(|candidate| {
        let mut reach = Reach::of(execution, &candidate.state, wanted);
        reach.add(last_resort.0.clone(), last_resort.1.clone());
        let recipes: Vec<_> = wanted.iter().map(|value| reach.recipe(value)).collect();
        (candidate, recipes)
    });
    let best = with_recipes.min_by_key(|(candidate, recipes)| {
        let missing = recipes.iter().filter(|recipe| recipe.is_none()).count();
        let cost = emulation::cost(&candidate.instruction);
        (missing, cost, !candidate.exclusive)
    });
    best.map(|(candidate, recipes)| (candidate.instruction, recipes))
}
