//! Where the type of a cycle is: 0 for a slow one, 1 for a fast one. Likewise, which of its jobs it is.
//!
//! The function is executed once for each type. A place that holds 0 in one run and 1 in the other holds the
//! type, whatever happened to the argument on the way.

use evictscope_machine::code::{BlockId, FunctionCode, InstructionId};
use evictscope_machine::flow::{Atoms, Execution, Frame, Operand, State, Value};

/// Bytes of the type, which is an `int`.
const WIDTH: u8 = 4;

/// A function, executed for each type.
pub struct ByType<'a> {
    slow: Execution<'a>,
    fast: Execution<'a>,
}

impl<'a> ByType<'a> {
    /// Executes `code`, which is called with the type in these registers.
    pub fn run(code: &'a FunctionCode, registers: &[usize]) -> Self {
        let run = |number| {
            let mut atoms = Atoms::new(code.budget.clone());
            let mut entry = State::at_entry(&mut atoms);
            for register in registers {
                entry.registers[*register] = Value::constant(number);
            }
            Execution::run_from(code, entry, atoms, None)
        };
        Self {
            slow: run(0),
            fast: run(1),
        }
    }

    /// Returns what holds the type before each instruction of a block: a register, or else a stack slot.
    pub fn places(&mut self, block: BlockId) -> Vec<Option<Operand>> {
        let states = self.states(block);
        let states = states.iter();
        states.map(|(slow, fast)| self.place(slow, fast)).collect()
    }

    fn place(&mut self, slow: &State, fast: &State) -> Option<Operand> {
        if let Some(number) = holding(slow, fast).next() {
            return Some(Operand::Register {
                number: u8::try_from(number).ok()?,
                width: WIDTH,
                plus: 0,
            });
        }
        let frame = Frame::of(slow, &mut self.slow.atoms)?;
        let other = Frame::of(fast, &mut self.fast.atoms)?;
        let mut slots = slow.stack.iter();
        slots.find_map(|(offset, (value, width))| {
            let (other_value, other_width) = fast.stack.get(offset)?;
            let is_type = low(value) == Some(0) && low(other_value) == Some(1);
            let is_wide = *width >= WIDTH && *other_width >= WIDTH;
            let own = frame.slot(*offset, WIDTH);
            own.filter(|own| is_type && is_wide && Some(own) == other.slot(*offset, WIDTH).as_ref())
        })
    }

    /// Returns the numbers of the registers that hold the type before an instruction.
    pub fn registers(&mut self, at: InstructionId) -> Vec<usize> {
        let states = self.states(at.block);
        let here = states.get(at.index);
        here.map_or_else(Vec::new, |(slow, fast)| holding(slow, fast).collect())
    }

    /// Returns what is known before each instruction of a block, in a slow cycle and in a fast one.
    fn states(&mut self, block: BlockId) -> Vec<(State, State)> {
        let slow = self.slow.states_in(block).into_iter();
        slow.zip(self.fast.states_in(block)).collect()
    }
}

/// Returns the numbers of the registers that hold the type.
fn holding<'s>(slow: &'s State, fast: &'s State) -> impl Iterator<Item = usize> + 's {
    let pairs = slow.registers.iter().zip(&fast.registers).enumerate();
    let holding = pairs.filter(|(_, (slow, fast))| low(slow) == Some(0) && low(fast) == Some(1));
    holding.map(|(number, _)| number)
}

/// Returns the number in the low 4 bytes, if the value is one.
fn low(value: &Value) -> Option<u32> {
    Some(value.as_constant()? as u32)
}
