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
        let unwinding = registers.architecture.unwinding();
        let mut section = EhFrame::new(&self.data, LittleEndian);
        section.set_vendor(unwinding.vendor);
        let mut bases = BaseAddresses::default();
        [bases.eh_frame.section, bases.eh_frame.text] = self.bases;
        let found = section.fde_from_offset(&bases, entry.offset.into(), common_entry);
        let found = found.ok().filter(|found| found.entry_len() <= MAX_ENTRY)?;
        let encoding = found.cie().encoding();
        let is_signal = found.is_signal_trampoline();
        let row = found.unwind_info_for_address(&section, &bases, &mut work.0, at.get()).ok()?;
        if row.register(unwinding.return_address) == Some(RegisterRule::Undefined) {
            return Some(Caller::Nothing);
        }
        let evaluation = Expressions { section: &section, encoding, registers, read };
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => registers.get(*register)?.wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => evaluation.value(expression, None)?,
        };
        let mut caller = registers.preserved();
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
        // A caller's frame is above the frame it called, so this comes to an end. A function that was called last can
        // have no frame, and its return address in a register.
        let mut goes_on = caller.stack_pointer()? > registers.stack_pointer()?;
        if unwinding.instruction_pointer != unwinding.return_address {
            let is_kept = row.register(unwinding.return_address).is_some();
            let from = if is_kept { &caller } else { registers };
            let to = from.get(unwinding.return_address)? & unwinding.addresses;
            goes_on |= !is_kept && caller.stack_pointer() == registers.stack_pointer();
            caller.set(unwinding.return_address, None);
            caller.set(unwinding.instruction_pointer, Some(to));
        }
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
        self.get(self.architecture.unwinding().instruction_pointer)
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(self.architecture.unwinding().stack_pointer)
    }

    /// Returns the same frame, but with its code continuing at another address.
    #[must_use]
    pub fn going_on_at(mut self, address: u64) -> Self {
        self.set(self.architecture.unwinding().instruction_pointer, Some(address));
        self
    }

    /// Returns the caller's registers where a function has changed neither its stack pointer nor its link register.
    pub fn behind_link(&self) -> Option<Self> {
        let unwinding = self.architecture.unwinding();
        let mut caller = self.preserved();
        caller.set(unwinding.stack_pointer, self.stack_pointer());
        caller.set(unwinding.instruction_pointer, Some(self.get(unwinding.return_address)? & unwinding.addresses));
        Some(caller)
    }

    /// Returns those that a function preserves.
    fn preserved(&self) -> Self {
        let mut preserved = Self { architecture: self.architecture, values: [None; COUNT] };
        for register in self.architecture.unwinding().preserved {
            preserved.set(*register, self.get(*register));
        }
        preserved
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

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;
    use gimli::{AArch64, BaseAddresses};

    use super::{Caller, FrameRegisters, Tables, Work};
    use crate::elf::frames::Frames;
    use crate::isa::Architecture;

    /// Where the function begins, to which it returns, and its stack pointer.
    const BEGIN: u64 = 0x4000;
    const CALLER: u64 = 0xaaaa_1234_5678;
    const STACK: u64 = 0xffff_0000_1000;

    /// Returns the table of `paciasp; stp x29, x30, [sp, #-32]!`, as gcc and clang write it.
    fn table() -> Vec<u8> {
        let common = [&[0, 0, 0, 0, 1, b'z', b'R', 0, 4, 0x78, 30, 1, 0][..], &[0x0c, 31, 0]].concat();
        let [begin, size] = [BEGIN, 16].map(u64::to_le_bytes);
        let rules = [0x41, 0x2d, 0x41, 0x0e, 32, 0x80 | 29, 4, 0x80 | 30, 3];
        let back = (4 + common.len() as u32 + 4).to_le_bytes();
        let own = [&back[..], &begin, &size, &[0], &rules].concat();
        [common, own].iter().flat_map(|entry| [&(entry.len() as u32).to_le_bytes()[..], entry].concat()).collect()
    }

    #[test]
    fn a_signed_return_address_leads_to_the_caller() {
        let architecture = Architecture::Aarch64;
        let data = table();
        let bases = BaseAddresses::default().set_eh_frame(0);
        let frames = Frames::parse(&data, &bases, architecture);
        let tables = Tables { data, bases: [Some(0), None] };
        // The signature is where addresses have no bits; bit 55 says that it is a user's.
        for signature in [0, 0x007b << 48, 0xff7f << 48] {
            let signed = CALLER | signature;
            let mut registers = FrameRegisters::of_interrupted(architecture, &[7; 34]);
            registers.set(AArch64::SP, Some(STACK));
            registers.set(AArch64::X30, Some(signed));
            let read = |at| Some(if at == STACK + 8 { signed } else { at });
            let caller = |far| {
                let at = FileAddress::new(BEGIN + far);
                tables.caller(&mut Work::default(), frames.at(at)?, at, &registers, &read)
            };
            let behind = registers.behind_link().map(|found| (found.instruction_pointer(), found.stack_pointer()));
            assert_eq!(behind, Some((Some(CALLER), Some(STACK))));
            for (far, stack, frame) in [(0, STACK, 7), (4, STACK, 7), (8, STACK + 32, STACK)] {
                let Some(Caller::Called(found)) = caller(far) else { panic!("at {far}: {:?}", caller(far)) };
                assert_eq!([found.instruction_pointer(), found.stack_pointer()], [CALLER, stack].map(Some));
                assert_eq!(found.get(AArch64::X29), Some(frame));
            }
        }
    }
}
