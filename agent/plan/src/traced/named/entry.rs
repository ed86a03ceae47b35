//! Where the probes of a function go that a user names.

use iced_x86::Instruction;

use crate::code::emulation;
use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::plan::Site;
use crate::traced::sites;

/// Functions that return twice, or in another frame: a return probe would lead them astray.
const RETURN_TWICE: [&str; 5] = ["setjmp", "_setjmp", "__sigsetjmp", "sigsetjmp", "vfork"];

/// Returns the cheapest site that every call passes once, before the stack pointer moves: there the return address is
/// where the kernel expects it.
///
/// # Errors
///
/// Says why no probe can be placed.
pub fn entry(image: &Image<'_>, address: FileAddress, name: &str) -> Result<Site, String> {
    if RETURN_TWICE.contains(&name) {
        return Err("it returns more than once, which a return probe would prevent".to_owned());
    }
    if name.contains(".cold") || !image.is_code(address) || !image.is_function(address) {
        return Err("no function begins there".to_owned());
    }
    let code = FunctionCode::decode(image, address).map_err(|why| why.to_string())?;
    let first = code.blocks.first().ok_or("it has no instructions")?;
    if !first.predecessors.is_empty() {
        return Err("its code jumps back to its own beginning, so that a probe there would count other things than calls".to_owned());
    }
    let before = before_the_stack_moves(&first.instructions);
    let emulated = before.iter().find(|own| emulation::is_emulated(own));
    let cheapest = emulated.or_else(|| before.iter().find(|own| !emulation::is_long_nop(own)));
    let cheapest = cheapest.ok_or(
        "it begins with a 5-byte nop, and a probe there corrupts what its caller keeps below the stack pointer",
    )?;
    sites::site(image, cheapest).ok_or_else(|| "its code is not in the file".to_owned())
}

/// Returns the instructions that all calls execute with the stack pointer as the call has left it.
fn before_the_stack_moves(instructions: &[Instruction]) -> &[Instruction] {
    let moves = |own: &Instruction| own.is_stack_instruction() || changes_stack_pointer(own);
    let first = instructions.iter().position(moves);
    // The one that moves it is executed after its probe was hit.
    let end = first.map_or(instructions.len(), |first| first + 1);
    &instructions[..end]
}

fn changes_stack_pointer(instruction: &Instruction) -> bool {
    use iced_x86::Register::RSP;
    let is_named = instruction.op_count() > 0 && instruction.op0_register().full_register() == RSP;
    is_named || instruction.stack_pointer_increment() != 0
}
