//! A machine that runs one small function with numbers, to find out what it computes.
//!
//! Its globals hold noise, which differs from run to run, except one that the caller chooses. A
//! function whose result is always the sum of certain globals computes that sum, whatever its
//! instructions look like: unrolled, vectorised or as written. This is how a loop that adds up counters is
//! understood.
//!
//! An instruction that is not modelled, a call, a store to anything but the stack, or too many steps
//! end the run. Deliberately absent: AVX, floating point, strings, system calls.

mod flags;
mod run;
mod scalar;
mod vector;

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::code::imports::is_hook;
use crate::code::instruction::{next_address, target};
use crate::code::registers::RSP;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use run::{MAX_STEPS, Run, STACK};

pub use run::{Globals, Halt, Load};

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What the function returned.
    pub result: u64,
    /// The globals that it loaded, in order, with repetitions.
    pub loads: Vec<Load>,
}

/// A function that can be run.
pub struct Machine<'a, 'data> {
    image: &'a Image<'data>,
    decoded: HashMap<FileAddress, Instruction>,
}

impl<'a, 'data> Machine<'a, 'data> {
    /// Makes a machine for functions of `image`.
    pub fn new(image: &'a Image<'data>) -> Self {
        Self {
            image,
            decoded: HashMap::new(),
        }
    }

    /// Runs the function at `entry`. Fails where it does anything that the machine does not know.
    pub fn run(&mut self, entry: FileAddress, globals: Globals) -> Result<Outcome, Halt> {
        let mut run = Run::new(self.image, globals);
        let mut at = entry;
        for _ in 0..MAX_STEPS {
            let instruction = self.decode(at)?;
            if is_hook(self.image, &instruction) {
                at = next_address(&instruction);
                continue;
            }
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

    fn decode(&mut self, at: FileAddress) -> Result<Instruction, Halt> {
        if let Some(instruction) = self.decoded.get(&at) {
            return Ok(*instruction);
        }
        let bytes = self.image.bytes_at(at).filter(|_| self.image.is_code(at));
        let bytes = bytes.ok_or(Halt::Instruction(at))?;
        let instruction = Decoder::with_ip(64, bytes, at.get(), DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Err(Halt::Instruction(at));
        }
        self.decoded.insert(at, instruction);
        Ok(instruction)
    }
}

/// Where a run goes on.
enum Next {
    At(FileAddress),
    Returned,
}

impl Run<'_, '_> {
    fn step(&mut self, instruction: &Instruction) -> Result<Next, Halt> {
        let next = Next::At(next_address(instruction));
        let unknown = Halt::at(instruction);
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
                Ok(Next::At(target(instruction)))
            }
            FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
                let holds = self.flags.condition(instruction.condition_code());
                Ok(if holds.ok_or(unknown)? {
                    Next::At(target(instruction))
                } else {
                    next
                })
            }
            FlowControl::IndirectBranch => {
                Ok(Next::At(FileAddress::new(self.read(instruction, 0)?)))
            }
            _ => Err(unknown),
        }
    }
}
