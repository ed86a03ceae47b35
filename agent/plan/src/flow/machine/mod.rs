//! A machine that runs one small function with numbers, to find out what it computes.
//!
//! Its globals hold noise (two runs with different noise hold different numbers), except those that
//! the caller chooses. A function whose result is always the sum of certain globals computes that
//! sum, whatever its instructions look like: unrolled, vectorised or as written. This is how the
//! loop over an allocator's counters is understood.
//!
//! An instruction that is not modelled, a call, a store to anything but the stack, or too many steps
//! end the run. Deliberately absent: AVX, floating point, strings, system calls.

mod flags;
mod scalar;
mod vector;

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use self::flags::Flags;
use crate::elf::image::Image;
use crate::flow::execute::general_register;
use crate::flow::state::RSP;

/// Most instructions of one run.
const MAX_STEPS: usize = 1 << 14;
/// Where the stack is: an address that no executable's segments have.
const STACK: u64 = 0x7ffe_0000_0000;
/// Bytes around [`STACK`] that belong to it.
const STACK_SIZE: u64 = 1 << 16;

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// An instruction that the machine does not know, or knows too little about.
    #[error("the instruction at {0:#x} is not understood")]
    Instruction(u64),
    /// An access to memory that is not the function's to read or write.
    #[error("the instruction at {0:#x} reads or writes memory it should not")]
    Memory(u64),
    /// No end in sight.
    #[error("it does not end within {MAX_STEPS} instructions")]
    Endless,
}

/// A load of a global variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Load {
    /// Virtual address, as in the file.
    pub address: u64,
    /// Bytes: 1, 2, 4 or 8; a vector's halves are loads of their own.
    pub width: u64,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What the function returned.
    pub result: u64,
    /// The globals that it loaded, in order, with repetitions.
    pub loads: Vec<Load>,
}

/// The globals as one run sees them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Globals {
    /// Chooses the noise.
    pub seed: u64,
    /// A global that is not noise, and its value.
    pub chosen: Option<(Load, u64)>,
}

impl Globals {
    /// The aligned 8 bytes at `address`, which no section of the file determines.
    fn word(&self, address: u64) -> u64 {
        let noise = noise(address ^ self.seed);
        match self.chosen {
            Some((load, value)) if load.address & !7 == address => {
                let shift = 8 * (load.address & 7);
                let mask = low_bytes(u64::MAX, load.width).wrapping_shl(shift as u32);
                (noise & !mask) | (value.wrapping_shl(shift as u32) & mask)
            }
            _ => noise,
        }
    }

    /// What the 8 bytes at `address` hold, which must be a multiple of 8.
    pub fn value(&self, address: u64) -> u64 {
        self.word(address)
    }
}

/// A number without a pattern (the finaliser of SplitMix64).
fn noise(of: u64) -> u64 {
    let mut mixed = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The low `width` bytes.
fn low_bytes(value: u64, width: u64) -> u64 {
    match width {
        0..8 => value & ((1 << (8 * width)) - 1),
        _ => value,
    }
}

/// A function that can be run.
pub struct Machine<'a, 'data> {
    image: &'a Image<'data>,
    decoded: HashMap<u64, Instruction>,
}

impl<'a, 'data> Machine<'a, 'data> {
    /// A machine for functions of `image`.
    pub fn new(image: &'a Image<'data>) -> Self {
        Self {
            image,
            decoded: HashMap::new(),
        }
    }

    /// Runs the function at `entry`.
    ///
    /// # Errors
    ///
    /// Where it does anything that the machine does not know.
    pub fn run(&mut self, entry: u64, globals: Globals) -> Result<Outcome, Halt> {
        let mut run = Run::new(self.image, globals);
        let mut at = entry;
        for _ in 0..MAX_STEPS {
            let instruction = self.decode(at)?;
            match run.step(&instruction)? {
                Next::At(next) => at = next,
                Next::Returned => {
                    return Ok(Outcome {
                        result: run.registers[0],
                        loads: run.loads,
                    });
                }
            }
        }
        Err(Halt::Endless)
    }

    fn decode(&mut self, at: u64) -> Result<Instruction, Halt> {
        if let Some(instruction) = self.decoded.get(&at) {
            return Ok(*instruction);
        }
        let bytes = self.image.bytes_at(at).filter(|_| self.image.is_code(at));
        let bytes = bytes.ok_or(Halt::Instruction(at))?;
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Err(Halt::Instruction(at));
        }
        self.decoded.insert(at, instruction);
        Ok(instruction)
    }
}

/// Where a run goes on.
enum Next {
    At(u64),
    Returned,
}

/// One run.
struct Run<'a, 'data> {
    image: &'a Image<'data>,
    globals: Globals,
    registers: [u64; 16],
    vectors: [u128; 16],
    flags: Flags,
    stack: HashMap<u64, u8>,
    loads: Vec<Load>,
}

impl<'a, 'data> Run<'a, 'data> {
    fn new(image: &'a Image<'data>, globals: Globals) -> Self {
        // What a function finds in its registers is noise as well.
        let mut registers = std::array::from_fn(|number| noise(!globals.seed ^ number as u64));
        registers[RSP] = STACK;
        Self {
            image,
            globals,
            registers,
            vectors: std::array::from_fn(|number| {
                u128::from(noise(!globals.seed ^ (16 + number as u64)))
            }),
            flags: Flags::default(),
            stack: HashMap::new(),
            loads: Vec::new(),
        }
    }

    fn step(&mut self, instruction: &Instruction) -> Result<Next, Halt> {
        let next = Next::At(instruction.next_ip());
        let unknown = Halt::Instruction(instruction.ip());
        match instruction.flow_control() {
            FlowControl::Next => {
                if vector::is_vector(instruction) {
                    self.vector(instruction)?;
                } else {
                    self.scalar(instruction)?;
                }
                Ok(next)
            }
            FlowControl::Return if self.registers[RSP] == STACK => Ok(Next::Returned),
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                Ok(Next::At(instruction.near_branch_target()))
            }
            FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
                let holds = self.flags.condition(instruction.condition_code());
                Ok(if holds.ok_or(unknown)? {
                    Next::At(instruction.near_branch_target())
                } else {
                    next
                })
            }
            FlowControl::IndirectBranch => Ok(Next::At(self.read(instruction, 0)?)),
            _ => Err(unknown),
        }
    }

    /// Width in bytes of an operand.
    fn width(instruction: &Instruction, operand: u32) -> u64 {
        match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size() as u64,
            _ => instruction.memory_size().size() as u64,
        }
    }

    /// A general register, part of one, memory or an immediate; zero-extended.
    fn read(&mut self, instruction: &Instruction, operand: u32) -> Result<u64, Halt> {
        let unknown = Halt::Instruction(instruction.ip());
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let number = plain_register(register).ok_or(unknown)?;
                Ok(low_bytes(self.registers[number], register.size() as u64))
            }
            OpKind::Memory => {
                let address = self.address(instruction)?;
                self.load(instruction, address, Self::width(instruction, operand))
            }
            _ => instruction.try_immediate(operand).map_err(|_| unknown),
        }
    }

    fn write(&mut self, instruction: &Instruction, operand: u32, value: u64) -> Result<(), Halt> {
        let width = Self::width(instruction, operand);
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let number = plain_register(instruction.op_register(operand))
                    .ok_or(Halt::Instruction(instruction.ip()))?;
                let register = &mut self.registers[number];
                *register = match width {
                    8 => value,
                    4 => low_bytes(value, 4),
                    _ => (*register & !low_bytes(u64::MAX, width)) | low_bytes(value, width),
                };
                Ok(())
            }
            _ => {
                let address = self.address(instruction)?;
                self.store(instruction, address, width, value)
            }
        }
    }

    /// The address of the memory operand.
    fn address(&self, instruction: &Instruction) -> Result<u64, Halt> {
        // The stack protector's canary: any number will do, at an address of its own.
        match instruction.segment_prefix() {
            Register::None => {}
            Register::FS => return Ok(STACK.wrapping_add(instruction.memory_displacement64())),
            _ => return Err(Halt::Memory(instruction.ip())),
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
            _ => Err(Halt::Instruction(instruction.ip())),
        }
    }

    fn load(&mut self, instruction: &Instruction, address: u64, width: u64) -> Result<u64, Halt> {
        if is_stack(address) {
            let seed = self.globals.seed;
            return Ok((0..width).rev().fold(0, |value, index| {
                let at = address.wrapping_add(index);
                let byte = self.stack.get(&at).copied();
                // What was never stored is noise.
                value << 8 | u64::from(byte.unwrap_or_else(|| noise(at ^ seed) as u8))
            }));
        }
        if !matches!(width, 1 | 2 | 4 | 8) || !address.is_multiple_of(width) {
            return Err(Halt::Memory(instruction.ip()));
        }
        if !self.image.is_writable(address) {
            let bytes = self
                .image
                .bytes_at(address)
                .and_then(|bytes| bytes.first_chunk());
            let word = u64::from_le_bytes(*bytes.ok_or(Halt::Memory(instruction.ip()))?);
            return Ok(low_bytes(word, width));
        }
        // A pointer to data that the file initialises is taken to stay as it is.
        let initial = self.image.pointer_at(address).filter(|_| width == 8);
        if let Some(pointer) = initial.filter(|pointer| self.image.is_writable(*pointer)) {
            return Ok(pointer);
        }
        self.loads.push(Load { address, width });
        let word = self.globals.word(address & !7);
        Ok(low_bytes(word >> (8 * (address & 7)), width))
    }

    fn store(
        &mut self,
        instruction: &Instruction,
        address: u64,
        width: u64,
        value: u64,
    ) -> Result<(), Halt> {
        if !is_stack(address) || width > 8 {
            return Err(Halt::Memory(instruction.ip()));
        }
        for (index, byte) in (0..width).zip(value.to_le_bytes()) {
            self.stack.insert(address.wrapping_add(index), byte);
        }
        Ok(())
    }
}

fn is_stack(address: u64) -> bool {
    address.wrapping_sub(STACK - STACK_SIZE / 2) < STACK_SIZE
}

/// Number of a general register or its low part; not of `ah` and its like.
fn plain_register(register: Register) -> Option<usize> {
    let is_high_byte = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    general_register(register).filter(|_| !is_high_byte)
}
