//! One probe site.

use borsh::{BorshDeserialize, BorshSerialize};
use iced_x86::{Formatter as _, GasFormatter};
use serde::Serialize;

use crate::code::emulation;
use crate::code::instruction::{Instruction, address};
use crate::elf::address::{FileAddress, FileOffset};
use crate::elf::image::Image;

/// One probe site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Offset in the file, which is what the kernel wants.
    pub file_offset: FileOffset,
    /// The instruction, in AT&T syntax, as `objdump` prints it.
    pub instruction: String,
    /// Whether the kernel emulates the instruction (else it single-steps it, at ten times the cost).
    pub emulated: bool,
}

impl Site {
    /// Returns the site at an instruction; `None` if it is not in the file.
    pub fn at(image: &Image<'_>, instruction: &Instruction) -> Option<Self> {
        let mut text = String::new();
        let mut formatter = GasFormatter::new();
        // Writes numbers as objdump does.
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_branch_leading_zeros(false);
        options.set_displacement_leading_zeros(false);
        formatter.format(instruction, &mut text);
        let address = address(instruction);
        Some(Self {
            address,
            file_offset: image.file_offset(address)?,
            instruction: text,
            emulated: emulation::is_emulated(instruction),
        })
    }
}
