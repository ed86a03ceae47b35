//! Executes effects with numbers, and holds what becomes of a state against what the processor made of it.

use anyhow::{Result, bail, ensure};
use evictscope_machine::ir::{
    Address, Effect, Expression, Flow, Index, Instruction, Operation, RegisterSet, Test, bit,
};

use super::Processor;
use super::runner::{FLAGS, MEMORY, PAGE, State, WORDS};

/// A number, unless it is not followed.
type Number = Option<u64>;

/// What the effects make of a state.
struct Effects<'a> {
    processor: &'a Processor,
    state: State,
    /// Which bits of it are not followed.
    unknown: State,
    /// The address of its memory.
    page: u64,
    temporaries: [Number; 256],
}

/// Holds the effects of an instruction against what became of a state, and where the processor went on.
pub fn compare(
    processor: &Processor,
    instruction: &Instruction,
    before: &State,
    page: u64,
    (after, counter): &(State, u64),
) -> Result<()> {
    let unknown = vec![0; WORDS];
    let mut effects = Effects { processor, state: before.clone(), unknown, page, temporaries: [None; 256] };
    let next = instruction.next().get();
    let said = match &instruction.flow {
        Flow::Next => Some(next),
        Flow::Jump(target) | Flow::Call(target) => Some(target.get()),
        Flow::Branch(test, target) => effects.holds(*test).map(|holds| if holds { target.get() } else { next }),
        Flow::IndirectCall(to) | Flow::IndirectJump(to) => effects.value(to)?,
        Flow::Return | Flow::Stop => None,
    };
    ensure!(
        said.is_none_or(|said| (said ^ *counter) & processor.addresses == 0),
        "it goes on at {counter:#x}, not at {said:#x?}"
    );
    if instruction.is_call() || instruction.flow == Flow::Return {
        // What they do with the stack is what the convention says.
        effects.unknown[processor.stack_pointer()] = u64::MAX;
        if let Some(link) = processor.architecture.convention().link {
            effects.unknown[usize::from(link)] = u64::MAX;
        }
        effects.unknown[MEMORY..].fill(u64::MAX);
    }
    for effect in instruction.effects() {
        effects.execute(effect)?;
    }
    let Effects { state, unknown, .. } = effects;
    for at in 0..WORDS {
        let (is, said, known) = (after[at], state[at], !unknown[at]);
        ensure!(is & known == said & known, "word {at} of the state is {is:#x}, not {said:#x}, in {known:#x}");
    }
    Ok(())
}

/// Fails if what became of two states differs, which themselves differ in registers that should not matter only.
pub fn compare_others(
    processor: &Processor,
    instruction: &Instruction,
    (left, to): &(State, u64),
    (right, other): &(State, u64),
) -> Result<()> {
    ensure!(to == other, "it goes on at {to:#x} or at {other:#x}");
    let matters = matters(processor, instruction);
    for at in (0..WORDS).filter(|at| *at >= FLAGS || matters & bit(*at as u8) != 0) {
        let (left, right) = (left[at], right[at]);
        ensure!(
            left == right,
            "word {at} of the state is {left:#x} or {right:#x} by other registers than {matters:#x}"
        );
    }
    Ok(())
}

/// Returns the general registers that an instruction reads or writes.
pub fn matters(processor: &Processor, instruction: &Instruction) -> RegisterSet {
    let read = match &instruction.flow {
        // Where these go on, their effects do not say.
        Flow::IndirectCall(to) | Flow::IndirectJump(to) if **to == Expression::Unknown => RegisterSet::MAX,
        Flow::Return => RegisterSet::MAX,
        Flow::IndirectCall(to) | Flow::IndirectJump(to) => to.reads(),
        Flow::Branch(test, _) => test.reads(),
        _ => 0,
    };
    let effects = instruction.effects().iter();
    // Pushes, calls and returns move the stack pointer without saying so.
    effects.fold(read | bit(processor.stack_pointer() as u8), |all, effect| all | effect.reads() | effect.writes())
}

impl Effects<'_> {
    fn execute(&mut self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::Let { temporary, value } => self.temporaries[usize::from(*temporary)] = self.value(value)?,
            Effect::Set { register, width, value } => {
                let (value, at) = (self.value(value)?, usize::from(*register) * 8);
                if *width == 4 {
                    self.write(at, 8, Some(0));
                }
                self.write(at, *width, value);
            }
            Effect::SetLane { vector, lane, value } => {
                let value = self.value(value)?;
                if let Some(at) = self.processor.lane_at(*vector, *lane) {
                    self.write(at, 8, value);
                }
            }
            Effect::Store { address, width, value } => {
                let value = self.value(value)?;
                self.store(self.address(address), *width, value)?;
            }
            Effect::Push(value) => {
                let value = self.value(value)?;
                let top = self.read(self.processor.stack_pointer() * 8, 8).map(|top| top.wrapping_sub(8));
                self.write(self.processor.stack_pointer() * 8, 8, top);
                self.store(top, 8, value)?;
            }
            Effect::Compare { left, right, bits } => {
                self.compare(self.value(left)?.zip(self.value(right)?), *bits, self.processor.flags.of_comparison());
            }
            Effect::CompareIf { test, left, right, bits, otherwise } => {
                let flags = &self.processor.flags;
                let sides = self.value(left)?.zip(self.value(right)?);
                match self.holds(*test) {
                    Some(true) => self.compare(sides, *bits, flags.of_comparison()),
                    Some(false) => {
                        self.state[FLAGS] = flags.of_relations(otherwise);
                        self.unknown[FLAGS] = !flags.of_comparison();
                    }
                    None => self.unknown[FLAGS] = u64::MAX,
                }
            }
            Effect::ZeroAndSign { of, bits } => {
                self.compare(self.value(of)?.map(|of| (of, 0)), *bits, self.processor.flags.zero_and_sign());
            }
            Effect::Clobber(clobber) => {
                let registers = (0..FLAGS).filter(|number| clobber.registers & bit(*number as u8) != 0);
                let vectors = (0..64).filter(|number| clobber.vectors & bit(*number) != 0);
                let processor = self.processor;
                let lanes = vectors.flat_map(|vector| (0..4).filter_map(move |lane| processor.lane_at(vector, lane)));
                let flags = clobber.flags.then_some(FLAGS);
                for word in registers.chain(flags).chain(lanes.map(|at| at / 8)) {
                    self.unknown[word] = u64::MAX;
                }
            }
            Effect::ClobberMemory { address, bytes } => {
                let from = self.address(address);
                let first = from.unwrap_or(self.page).wrapping_sub(self.page);
                let length = from.and(*bytes).map_or(PAGE, u64::from);
                for offset in (first..first.saturating_add(length)).take_while(|offset| *offset < PAGE) {
                    self.write(MEMORY * 8 + offset as usize, 1, None);
                }
            }
            Effect::Read { .. } => {}
        }
        Ok(())
    }

    /// Reads some bytes of the state.
    fn read(&self, at: usize, width: u8) -> Number {
        (at..at + usize::from(width)).rev().try_fold(0, |value, byte| {
            let (word, shift) = (byte / 8, byte % 8 * 8);
            (self.unknown[word] >> shift & 0xff == 0).then(|| value << 8 | self.state[word] >> shift & 0xff)
        })
    }

    fn write(&mut self, at: usize, width: u8, value: Number) {
        for (index, byte) in (at..at + usize::from(width)).enumerate() {
            let (word, shift) = (byte / 8, byte % 8 * 8);
            let (new, unknown) = value.map_or((0, 0xff), |value| (value >> (8 * index) & 0xff, 0));
            self.state[word] = self.state[word] & !(0xff << shift) | new << shift;
            self.unknown[word] = self.unknown[word] & !(0xff << shift) | unknown << shift;
        }
    }

    fn compare(&mut self, sides: Option<(u64, u64)>, bits: u8, known: u64) {
        self.state[FLAGS] = sides.map_or(0, |(left, right)| self.processor.flags.difference(left, right, bits));
        self.unknown[FLAGS] = sides.map_or(u64::MAX, |_| !known);
    }

    /// Stores to memory; anywhere, if the address is not followed.
    fn store(&mut self, address: Number, width: u8, value: Number) -> Result<()> {
        match address {
            Some(address) => self.write(self.in_page(address, width)?, width, value),
            None => self.unknown[MEMORY..].fill(u64::MAX),
        }
        Ok(())
    }

    fn in_page(&self, address: u64, width: u8) -> Result<usize> {
        let offset = address.wrapping_sub(self.page);
        ensure!(offset <= PAGE - u64::from(width), "the processor cannot have found memory at {address:#x}");
        Ok(MEMORY * 8 + offset as usize)
    }

    fn address(&self, address: &Address) -> Number {
        let mut sum = address.displacement;
        for index in address.base.map(|base| Index::whole(base, 1)).into_iter().chain(address.index) {
            let at = usize::from(index.register) * 8;
            let value = match index.half {
                None => self.read(at, 8)?,
                Some(false) => self.read(at, 4)?,
                Some(true) => i64::from(self.read(at, 4)? as i32) as u64,
            };
            sum = sum.wrapping_add(value.wrapping_mul(index.scale.into()));
        }
        (!address.is_elsewhere).then_some(sum)
    }

    fn value(&self, expression: &Expression) -> Result<Number> {
        Ok(match expression {
            Expression::Constant(number) => Some(*number),
            Expression::Register { number, width } => self.read(usize::from(*number) * 8, *width),
            Expression::Temporary(temporary) => self.temporaries[usize::from(*temporary)],
            Expression::Lane { vector, lane } => self.processor.lane_at(*vector, *lane).and_then(|at| self.read(at, 8)),
            Expression::Load { address, width } => match self.address(address) {
                Some(address) => self.read(self.in_page(address, *width)?, *width),
                None => None,
            },
            Expression::Address(address) => self.address(address),
            Expression::Computed(operation, of) => {
                let of: Option<Vec<u64>> = of.iter().map(|part| self.value(part)).collect::<Result<_>>()?;
                of.map(|of| computed(*operation, &of)).transpose()?.flatten()
            }
            Expression::Select(test, of) => {
                let [then, otherwise] = [self.value(&of[0])?, self.value(&of[1])?];
                self.holds(*test).and_then(|holds| if holds { then } else { otherwise })
            }
            Expression::Truth(test) => self.holds(*test).map(u64::from),
            Expression::Unknown => None,
        })
    }

    fn holds(&self, test: Test) -> Option<bool> {
        let read = |register, width| self.read(usize::from(register) * 8, width);
        match test {
            Test::Compared(relation) => self.processor.flags.holds(relation, self.state[FLAGS], !self.unknown[FLAGS]),
            Test::Zero { register, width, is_zero } => Some((read(register, width)? == 0) == is_zero),
            Test::Bit { register, bit, is_set } => Some((read(register, 8)? >> bit & 1 == 1) == is_set),
            Test::Unknown => None,
        }
    }
}

/// Computes what an operation says; `None` where it says no number.
fn computed(operation: Operation, of: &[u64]) -> Result<Number> {
    let low = |value: u64, bits: u8| value & (u64::MAX >> (64 - bits));
    let signed = |value: u64, bits: u8| (value << (64 - bits)).cast_signed() >> (64 - bits);
    let wide = |value: u64| i128::from(value.cast_signed());
    let by = |by: u64, bits: u8| by & if bits == 64 { 63 } else { 31 };
    let double = f64::from_bits;
    let bits_of = |result: f64| if result.is_nan() { None } else { Some(result.to_bits()) };
    Ok(match (operation, of) {
        (Operation::Add, &[left, right]) => Some(left.wrapping_add(right)),
        (Operation::Subtract, &[left, right]) => Some(left.wrapping_sub(right)),
        (Operation::Multiply, &[left, right]) => Some(left.wrapping_mul(right)),
        (Operation::And, &[left, right]) => Some(left & right),
        (Operation::Or, &[left, right]) => Some(left | right),
        (Operation::Xor, &[left, right]) => Some(left ^ right),
        (Operation::ZeroExtend(bits), &[of]) => Some(low(of, bits)),
        (Operation::SignExtend(bits), &[of]) => Some(signed(of, bits) as u64),
        (Operation::ShiftLeft(bits), &[of, count]) => Some(of << by(count, bits)),
        (Operation::ShiftRight(bits), &[of, count]) => Some(low(of, bits) >> by(count, bits)),
        (Operation::ShiftRightSigned(bits), &[of, count]) => Some((signed(of, bits) >> by(count, bits)) as u64),
        (Operation::UpperHalf, &[left, right]) => Some(((wide(left) * wide(right)) >> 64) as u64),
        (Operation::Whole, &[upper, lower, by]) => {
            ((wide(upper) << 64) | i128::from(lower)).checked_div(wide(by)).map(|quotient| quotient as u64)
        }
        (Operation::Double, &[of]) => bits_of(of.cast_signed() as f64),
        (Operation::DoubleProduct, &[left, right]) => bits_of(double(left) * double(right)),
        (Operation::DoubleQuotient, &[left, right]) => bits_of(double(left) / double(right)),
        (Operation::DoubleProductAndSum, &[left, right, added]) => {
            bits_of(double(left).mul_add(double(right), double(added)))
        }
        _ => bail!("{operation:?} of {} numbers", of.len()),
    })
}
