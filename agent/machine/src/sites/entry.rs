//! Where a probe sees every call of a function.

use evictscope_model::FileAddress;

use crate::code::emulation;
use crate::code::graph::FunctionCode;
use crate::code::instruction::Instruction;
use crate::elf::image::Image;

use super::site::Site;

/// Functions that return twice, or in another frame: a return probe would break them.
const RETURN_TWICE: [&str; 5] = ["setjmp", "_setjmp", "__sigsetjmp", "sigsetjmp", "vfork"];

/// Returns the first emulated `push` or `call` of those that every call executes before the stack pointer moves;
/// otherwise the first instruction that can be probed.
pub fn of_every_call(code: &FunctionCode) -> Option<&Instruction> {
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

/// Returns the cheapest site that every call passes once, before the stack pointer moves: there the return address is
/// where the kernel expects it.
///
/// # Errors
///
/// Says why no probe can be placed.
pub fn of_named(image: &Image<'_>, address: FileAddress, name: &str) -> Result<Site, String> {
    if RETURN_TWICE.contains(&name) {
        return Err("it returns more than once, which a return probe would break".to_owned());
    }
    if name.contains(".cold") || !image.is_code(address) || !image.is_function(address) {
        return Err("no function begins there".to_owned());
    }
    let code = FunctionCode::decode(image, address).map_err(|why| why.to_string())?;
    let first = code.blocks.first().ok_or("it has no instructions")?;
    if !first.predecessors.is_empty() {
        return Err("its code jumps back to its own start, so a probe there would not count calls alone".to_owned());
    }
    let before = before_the_stack_moves(&first.instructions);
    let emulated = before.iter().find(|own| emulation::is_emulated(own));
    let cheapest = emulated.or_else(|| before.iter().find(|own| !emulation::is_long_nop(own)));
    let cheapest = cheapest
        .ok_or("it begins with a long nop, and a probe there would corrupt what lies below the stack pointer")?;
    Site::at(image, cheapest).ok_or_else(|| "its code is not in the file".to_owned())
}

/// Returns the instructions that all calls execute with the stack pointer as the call left it.
fn before_the_stack_moves(instructions: &[Instruction]) -> &[Instruction] {
    let moves = |own: &Instruction| own.is_stack_instruction() || changes_stack_pointer(own);
    let first = instructions.iter().position(moves);
    // The instruction that moves it executes after its probe is hit.
    let end = first.map_or(instructions.len(), |first| first + 1);
    &instructions[..end]
}

fn changes_stack_pointer(instruction: &Instruction) -> bool {
    use iced_x86::Register::RSP;
    let is_named = instruction.op_count() > 0 && instruction.op0_register().full_register() == RSP;
    is_named || instruction.stack_pointer_increment() != 0
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;

    use super::of_named;
    use crate::elf::image::Image;

    #[test]
    fn the_entry_is_the_cheapest_place_that_each_call_passes_once() {
        const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
        let place = |code: &[u8]| {
            let mut image = Image::of_code(code, FileAddress::new(0x1000));
            image.name_function("function", FileAddress::new(0x1000));
            let site = of_named(&image, FileAddress::new(0x1000), "function");
            site.map(|site| (site.address.get() - 0x1000, site.emulated))
        };
        // endbr64; push %rbp; pop %rbp; ret
        assert_eq!(place(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3]), Ok((4, true)));
        // sub $8,%rsp; push %rbp: after the first the return address is elsewhere.
        assert_eq!(place(&[0x48, 0x83, 0xec, 8, 0x55, 0xc3]), Ok((0, false)));
        // A 5-byte nop, and then push %rbp or xor %eax,%eax.
        assert_eq!(place(&[&NOP5[..], &[0x55, 0x5d, 0xc3]].concat()), Ok((5, true)));
        assert_eq!(place(&[&NOP5[..], &[0x31, 0xc0, 0xc3]].concat()), Ok((5, false)));
        // dec %edi; jne to the first instruction
        assert!(place(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]).is_err_and(|why| why.contains("jumps back")));
        let mut image = Image::of_code(&[0x55, 0xc3], FileAddress::new(0x1000));
        image.name_function("vfork", FileAddress::new(0x1000));
        assert!(of_named(&image, FileAddress::new(0x1000), "vfork").is_err());
        assert!(of_named(&image, FileAddress::new(0x1001), "elsewhere").is_err());
    }
}
