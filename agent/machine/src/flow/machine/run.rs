//! The state of one run: registers, stack and operands; the globals that it finds, and why it halts.

use std::collections::HashMap;

use iced_x86::{Instruction, OpKind, Register};

use super::flags::Flags;
use crate::code::instruction::address;
use crate::code::registers::{RSP, general_register, is_high_byte};
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::flow::bits::low_bits;

/// Where the stack is: an address that no executable's segments have.
pub const STACK: u64 = 0x7ffe_0000_0000;
/// Bytes around [`STACK`] that belong to it.
const STACK_SIZE: u64 = 1 << 16;

/// Most instructions of one run.
pub const MAX_STEPS: usize = 1 << 14;

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// An instruction that the machine does not know, or knows too little about.
    #[error("the instruction at {0:#x} is not understood")]
    Instruction(FileAddress),
    /// An access to memory that is not the function's to read or write.
    #[error("the instruction at {0:#x} reads or writes memory it should not")]
    Memory(FileAddress),
    /// No end in sight.
    #[error("it does not end within {MAX_STEPS} instructions")]
    Endless,
}

impl Halt {
    /// Reports an instruction that is not understood.
    pub fn at(instruction: &Instruction) -> Self {
        Self::Instruction(address(instruction))
    }
}

/// A load of a global variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Load {
    /// Virtual address, as in the file.
    pub address: FileAddress,
    /// Bytes: 1, 2, 4 or 8; a vector's halves are loads of their own.
    pub width: u64,
}

/// The globals as one run sees them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Globals {
    /// Chooses the noise.
    pub seed: u64,
    /// One global that is not noise, and its value.
    pub chosen: Option<(Load, u64)>,
}

impl Globals {
    /// Returns what the 8 bytes at `address` hold, which must be a multiple of 8.
    pub fn value(&self, address: FileAddress) -> u64 {
        let noise = noise(address.get() ^ self.seed);
        let (load, value) = match self.chosen {
            Some((load, value)) if load.address.get() & !7 == address.get() => (load, value),
            _ => return noise,
        };
        let shift = 8 * (load.address.get() & 7) as u32;
        let mask = low_bits(u64::MAX, 8 * load.width).wrapping_shl(shift);
        (noise & !mask) | (value.wrapping_shl(shift) & mask)
    }
}

/// Returns a number without a pattern (the finaliser of SplitMix64).
pub fn noise(of: u64) -> u64 {
    let mut mixed = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// One run.
pub struct Run<'a, 'data> {
    image: &'a Image<'data>,
    globals: Globals,
    /// By x86-64 number.
    pub registers: [u64; 16],
    /// By number, as halves of 16 bytes, the lower first.
    pub vectors: [[u128; 2]; 16],
    pub flags: Flags,
    stack: HashMap<u64, u8>,
    pub loads: Vec<Load>,
}

impl<'a, 'data> Run<'a, 'data> {
    /// Makes a run that has not begun.
    pub fn new(image: &'a Image<'data>, globals: Globals) -> Self {
        // What a function finds in its registers is noise as well.
        let mut registers = std::array::from_fn(|number| noise(!globals.seed ^ number as u64));
        registers[RSP] = STACK;
        Self {
            image,
            globals,
            registers,
            vectors: std::array::from_fn(|number| {
                [u128::from(noise(!globals.seed ^ (16 + number as u64))); 2]
            }),
            flags: Flags::default(),
            stack: HashMap::new(),
            loads: Vec::new(),
        }
    }

    /// Returns the width of an operand in bytes.
    pub fn width(instruction: &Instruction, operand: u32) -> u64 {
        match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size() as u64,
            _ => instruction.memory_size().size() as u64,
        }
    }

    /// Reads a general register, part of one, memory or an immediate, zero-extended.
    pub fn read(&mut self, instruction: &Instruction, operand: u32) -> Result<u64, Halt> {
        let unknown = Halt::at(instruction);
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let number = plain_register(register).ok_or(unknown)?;
                Ok(low_bits(self.registers[number], 8 * register.size() as u64))
            }
            OpKind::Memory => {
                let address = self.address(instruction)?;
                self.load(instruction, address, Self::width(instruction, operand))
            }
            _ => instruction.try_immediate(operand).map_err(|_| unknown),
        }
    }

    /// Writes a general register, part of one, or memory.
    pub fn write(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        value: u64,
    ) -> Result<(), Halt> {
        let width = Self::width(instruction, operand);
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let number = plain_register(instruction.op_register(operand))
                    .ok_or(Halt::at(instruction))?;
                let register = &mut self.registers[number];
                *register = match width {
                    8 => value,
                    4 => low_bits(value, 32),
                    _ => (*register & !low_bits(u64::MAX, 8 * width)) | low_bits(value, 8 * width),
                };
                Ok(())
            }
            _ => {
                let address = self.address(instruction)?;
                self.store(instruction, address, width, value)
            }
        }
    }

    /// Returns the address of the memory operand.
    pub fn address(&self, instruction: &Instruction) -> Result<u64, Halt> {
        // The stack protector's canary: any number will do, at an address of its own.
        match instruction.segment_prefix() {
            Register::None => {}
            Register::FS => return Ok(STACK.wrapping_add(instruction.memory_displacement64())),
            _ => return Err(Halt::Memory(address(instruction))),
        }
        let part = |register: Register, scale: u64| match register {
            Register::None | Register::RIP => Some(0),
            _ if register.size() == 8 => {
                Some(self.registers[general_register(register)?].wrapping_mul(scale))
            }
            _ => None,
        };
        let base = part(instruction.memory_base(), 1);
        let scale = u64::from(instruction.memory_index_scale());
        let index = part(instruction.memory_index(), scale);
        match (base, index) {
            (Some(base), Some(index)) => Ok(instruction
                .memory_displacement64()
                .wrapping_add(base)
                .wrapping_add(index)),
            _ => Err(Halt::at(instruction)),
        }
    }

    /// Loads `width` bytes.
    pub fn load(&mut self, instruction: &Instruction, at: u64, width: u64) -> Result<u64, Halt> {
        if is_stack(at) {
            let seed = self.globals.seed;
            return Ok((0..width).rev().fold(0, |value, index| {
                let at = at.wrapping_add(index);
                let byte = self.stack.get(&at).copied();
                // What was never stored is noise.
                value << 8 | u64::from(byte.unwrap_or_else(|| noise(at ^ seed) as u8))
            }));
        }
        let halt = Halt::Memory(address(instruction));
        if !matches!(width, 1 | 2 | 4 | 8) || !at.is_multiple_of(width) {
            return Err(halt);
        }
        let address = FileAddress::new(at);
        if !self.image.is_writable(address) {
            let bytes = self.image.bytes_at(address);
            let bytes = bytes.and_then(|bytes| bytes.first_chunk());
            let word = u64::from_le_bytes(*bytes.ok_or(halt)?);
            return Ok(low_bits(word, 8 * width));
        }
        // A pointer to data that the file initialises is taken to stay as it is.
        let initial = self.image.pointer_at(address).filter(|_| width == 8);
        if let Some(pointer) = initial.filter(|pointer| self.image.is_writable(*pointer)) {
            return Ok(pointer.get());
        }
        self.loads.push(Load { address, width });
        let word = self.globals.value(FileAddress::new(at & !7));
        Ok(low_bits(word >> (8 * (at & 7)), 8 * width))
    }

    /// Stores `width` bytes.
    pub fn store(
        &mut self,
        instruction: &Instruction,
        at: u64,
        width: u64,
        value: u64,
    ) -> Result<(), Halt> {
        if !is_stack(at) || width > 8 {
            return Err(Halt::Memory(address(instruction)));
        }
        for (index, byte) in (0..width).zip(value.to_le_bytes()) {
            self.stack.insert(at.wrapping_add(index), byte);
        }
        Ok(())
    }
}

fn is_stack(address: u64) -> bool {
    address.wrapping_sub(STACK - STACK_SIZE / 2) < STACK_SIZE
}

/// Returns the number of a general register or its low part, but not of `ah` and its like.
fn plain_register(register: Register) -> Option<usize> {
    general_register(register).filter(|_| !is_high_byte(register))
}
