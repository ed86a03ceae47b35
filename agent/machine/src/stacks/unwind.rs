//! From a frame to the frame that called it, by an unwind table entry.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, Encoding, Evaluation, EvaluationResult, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection as _, Value,
};

use crate::elf::frames::{Frame, TableBytes, UnwindTable, common_entry};
use crate::isa::Architecture;

/// The largest table to keep, in bytes: an executable of some megabytes has 0.3 MB, a large library some 5 MB.
const MAX_TABLE: usize = 16 << 20;
/// The largest entry to evaluate, in bytes. In most files the largest has less than 1 kB.
const MAX_ENTRY: usize = 16 << 10;
/// The most steps of an expression. The ones that linkers make for jumps to shared libraries have ten.
const MAX_STEPS: u32 = 64;

/// The content of the tables of one file.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Tables {
    data: Vec<u8>,
    /// What its pointers are relative to: the addresses of the tables, and of the code.
    bases: [Option<u64>; 2],
}

/// The working memory of unwinding. One serves all files.
#[derive(Default)]
pub struct Work(UnwindContext<usize>);

/// What called a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A frame, in which a call returns to the instruction pointer.
    Called(FrameRegisters),
    /// A frame that a signal interrupted at the instruction pointer.
    Interrupted(FrameRegisters),
    /// Nothing: the thread began here.
    Nothing,
}

impl Tables {
    /// Copies them; `None` if they are too large.
    pub fn copy(table: &UnwindTable<'_>) -> Option<Self> {
        if table.data.len() > MAX_TABLE {
            return None;
        }
        let bases = &table.bases.eh_frame;
        Some(Self { data: table.data.to_owned(), bases: [bases.section, bases.text] })
    }

    /// Returns what called the frame with these registers, whose code is at `at`, in the range of `entry`. `read`
    /// returns the 8 bytes of the stack at an address.
    ///
    /// Returns `None` if the tables do not say, or the copied stack does not extend that far.
    pub fn caller(
        &self,
        work: &mut Work,
        entry: Frame,
        at: FileAddress,
        registers: &FrameRegisters,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Caller> {
        let section = EhFrame::new(&self.data, LittleEndian);
        let mut bases = BaseAddresses::default();
        [bases.eh_frame.section, bases.eh_frame.text] = self.bases;
        let found = section.fde_from_offset(&bases, entry.offset.into(), common_entry);
        let found = found.ok().filter(|found| found.entry_len() <= MAX_ENTRY)?;
        let encoding = found.cie().encoding();
        let is_signal = found.is_signal_trampoline();
        let row = found.unwind_info_for_address(&section, &bases, &mut work.0, at.get()).ok()?;
        let unwinding = registers.architecture.unwinding();
        if row.register(unwinding.return_address) == Some(RegisterRule::Undefined) {
            return Some(Caller::Nothing);
        }
        let evaluation = Expressions { section: &section, encoding, registers, read };
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => registers.get(*register)?.wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => evaluation.value(expression, None)?,
        };
        let mut caller = FrameRegisters { architecture: registers.architecture, values: [None; COUNT] };
        for register in unwinding.preserved {
            caller.set(*register, registers.get(*register));
        }
        caller.set(unwinding.stack_pointer, Some(frame));
        for (register, rule) in row.registers() {
            let value = match rule {
                RegisterRule::Undefined | RegisterRule::Architectural => None,
                RegisterRule::SameValue => registers.get(*register),
                RegisterRule::Offset(offset) => read(frame.wrapping_add_signed(*offset)),
                RegisterRule::ValOffset(offset) => Some(frame.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => registers.get(*other),
                RegisterRule::Expression(place) => evaluation.value(place, Some(frame)).and_then(read),
                RegisterRule::ValExpression(value) => evaluation.value(value, Some(frame)),
                RegisterRule::Constant(value) => Some(*value),
            };
            caller.set(*register, value);
        }
        // A caller's frame is above the frame it called, so this comes to an end.
        let goes_on = caller.stack_pointer()? > registers.stack_pointer()?;
        caller.instruction_pointer().filter(|to| *to != 0)?;
        if is_signal { Some(Caller::Interrupted(caller)) } else { goes_on.then_some(Caller::Called(caller)) }
    }
}

/// Evaluates the expressions of one entry.
struct Expressions<'a, R> {
    section: &'a EhFrame<TableBytes<'a>>,
    encoding: Encoding,
    registers: &'a FrameRegisters,
    read: &'a R,
}

impl<R: Fn(u64) -> Option<u64>> Expressions<'_, R> {
    /// Returns the value of an expression that begins with `first` on its stack.
    fn value(&self, expression: &UnwindExpression<usize>, first: Option<u64>) -> Option<u64> {
        let mut evaluation: Evaluation<TableBytes<'_>> = expression.get(self.section).ok()?.evaluation(self.encoding);
        evaluation.set_max_iterations(MAX_STEPS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut state = evaluation.evaluate().ok()?;
        // Each result took at least one step.
        for _ in 0..MAX_STEPS {
            state = match state {
                EvaluationResult::Complete => return evaluation.value_result()?.to_u64(u64::MAX).ok(),
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register)?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = (self.read)(address)?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        None
    }
}

/// How many registers unwind tables name at most: the general ones, and where the frame continues.
const COUNT: usize = 33;

/// The registers of a frame, as far as they are known, by their numbers in unwind tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRegisters {
    architecture: Architecture,
    values: [Option<u64>; COUNT],
}

impl FrameRegisters {
    /// Makes them from `struct pt_regs`, in which the kernel keeps those of an interrupted thread.
    pub fn of_interrupted(architecture: Architecture, kept: &[u64]) -> Self {
        let mut registers = Self { architecture, values: [None; COUNT] };
        for (register, place) in architecture.unwinding().interrupted {
            registers.set(*register, kept.get(*place).copied());
        }
        registers
    }

    /// Returns where the frame's code continues: the address at which its thread was interrupted, or to which a call
    /// returns.
    pub fn instruction_pointer(&self) -> Option<u64> {
        self.get(self.architecture.unwinding().return_address)
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(self.architecture.unwinding().stack_pointer)
    }

    /// Returns the same frame, but with its code continuing at another address.
    #[must_use]
    pub fn going_on_at(mut self, address: u64) -> Self {
        self.set(self.architecture.unwinding().return_address, Some(address));
        self
    }

    pub(super) fn get(&self, register: Register) -> Option<u64> {
        self.values.get(usize::from(register.0)).copied().flatten()
    }

    pub(super) fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(place) = self.values.get_mut(usize::from(register.0)) {
            *place = value;
        }
    }
}
