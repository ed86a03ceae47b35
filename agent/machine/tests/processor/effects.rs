//! Executes effects with numbers, and holds what becomes of a state against what the processor made of it.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use evictscope_machine::ir::{Address, Effect, Expression, Flow, Instruction, Operation, RegisterSet, Relation, Test, bit};

use super::runner::{Answer, LANES, PAGE, REGISTERS, State, VECTORS};
use super::x86_64;

/// A number, unless it is not followed.
type Number = Option<u64>;

/// What the last comparison was.
enum Compared {
    /// One before the instruction.
    Before,
    /// Of two numbers of some bits.
    Sides(Number, Number, u32),
    /// Of a number with zero, but only the relations that this tells are known.
    Result(Number, u32),
    Unknown,
}

/// What the effects make of a state.
pub struct Effects<'a> {
    before: &'a State,
    page: u64,
    memory: &'a [u64],
    /// Registers, and which bits of them are not followed.
    registers: [(u64, u64); REGISTERS],
    lanes: [[Number; LANES]; VECTORS],
    temporaries: [Number; 256],
    /// The bytes that were stored.
    stored: BTreeMap<u64, Option<u8>>,
    /// From which address to which other one memory may have changed.
    clobbered: Vec<(u64, u64)>,
    compared: Compared,
}

const EXACT: [Relation; 8] = [
    Relation::Below,
    Relation::BelowOrEqual,
    Relation::Above,
    Relation::AboveOrEqual,
    Relation::Less,
    Relation::LessOrEqual,
    Relation::Greater,
    Relation::GreaterOrEqual,
];
const ZERO_AND_SIGN: [Relation; 4] =
    [Relation::Equal, Relation::NotEqual, Relation::Negative, Relation::NotNegative];

/// Holds the effects of an instruction against the processor's answer to a state. Fails if they are wrong.
pub fn compare(instruction: &Instruction, before: &State, page: u64, memory: &[u64], answer: &Answer) -> Result<()> {
    let mut effects = Effects {
        before,
        page,
        memory,
        registers: before.registers.map(|number| (number, 0)),
        lanes: before.lanes.map(|lanes| lanes.map(Some)),
        temporaries: [None; 256],
        stored: BTreeMap::new(),
        clobbered: Vec::new(),
        compared: Compared::Before,
    };
    effects.went_on(instruction, answer)?;
    if instruction.is_call() || instruction.flow == Flow::Return {
        // What they do is what the convention says; they leave all registers but one as they are.
        let stack_pointer = usize::from(evictscope_machine::isa::Architecture::X86_64.convention().stack_pointer);
        effects.registers[stack_pointer].1 = u64::MAX;
        effects.clobbered.push((0, u64::MAX));
    }
    for effect in instruction.effects() {
        effects.execute(effect)?;
    }
    effects.agree(answer)
}

impl Effects<'_> {
    fn went_on(&self, instruction: &Instruction, answer: &Answer) -> Result<()> {
        let (next, counter) = (instruction.next().get(), answer.counter);
        let expected = match &instruction.flow {
            Flow::Next => Some(next),
            Flow::Jump(target) | Flow::Call(target) => Some(target.get()),
            Flow::Branch(test, target) => self.holds(*test).map(|holds| if holds { target.get() } else { next }),
            Flow::IndirectCall(to) | Flow::IndirectJump(to) => self.value(to)?,
            Flow::Return | Flow::Stop => None,
        };
        ensure!(expected.is_none() || expected == counter, "goes on at {counter:#x?}, not at {expected:#x?}");
        Ok(())
    }

    fn execute(&mut self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::Let { temporary, value } => self.temporaries[usize::from(*temporary)] = self.value(value)?,
            Effect::Set { register, width, value } => {
                let (value, register) = (self.value(value)?, &mut self.registers[usize::from(*register)]);
                let (set, kept) = (low(u64::MAX, width * 8), if *width < 4 { !low(u64::MAX, width * 8) } else { 0 });
                *register = (register.0 & kept | value.unwrap_or(0) & set, register.1 & kept | value.map_or(set, |_| 0));
            }
            Effect::SetLane { vector, lane, value } => {
                self.lanes[usize::from(*vector)][usize::from(*lane)] = self.value(value)?;
            }
            Effect::Store { address, width, value } => {
                let value = self.value(value)?;
                self.store(address, *width, value);
            }
            Effect::Push(value) => {
                let value = self.value(value)?;
                let (top, unknown) = &mut self.registers[4];
                *top = top.wrapping_sub(8);
                ensure!(*unknown == 0, "pushes to an unknown place");
                let top = Address { displacement: *top, ..Address::default() };
                self.store(&top, 8, value);
            }
            Effect::Compare { left, right, bits } => {
                self.compared = Compared::Sides(self.value(left)?, self.value(right)?, (*bits).into());
            }
            Effect::ZeroAndSign { of, bits } => self.compared = Compared::Result(self.value(of)?, (*bits).into()),
            Effect::Clobber(clobber) => {
                let is_in = |set: RegisterSet, number: usize| set & bit(number as u8) != 0;
                for number in (0..REGISTERS).filter(|number| is_in(clobber.registers, *number)) {
                    self.registers[number].1 = u64::MAX;
                }
                for number in (0..VECTORS).filter(|number| is_in(clobber.vectors, *number)) {
                    self.lanes[number] = [None; LANES];
                }
                if clobber.flags {
                    self.compared = Compared::Unknown;
                }
            }
            Effect::ClobberMemory { address, bytes } => {
                let from = self.address(address);
                let end = from.zip(*bytes).map_or(u64::MAX, |(from, bytes)| from.wrapping_add(bytes.into()));
                self.clobbered.push((from.unwrap_or(0), end));
            }
        }
        Ok(())
    }

    fn store(&mut self, address: &Address, width: u8, value: Number) {
        match self.address(address) {
            Some(address) => {
                for byte in 0..u64::from(width) {
                    let value = value.map(|value| (value >> (8 * byte)) as u8);
                    self.stored.insert(address.wrapping_add(byte), value);
                }
            }
            None => self.clobbered.push((0, u64::MAX)),
        }
    }

    fn register(&self, number: u8, width: u8) -> Number {
        let (value, unknown) = self.registers[usize::from(number)];
        (low(unknown, width * 8) == 0).then(|| low(value, width * 8))
    }

    fn address(&self, address: &Address) -> Number {
        let mut sum = address.displacement;
        for (number, scale) in address.base.map(|base| (base, 1)).into_iter().chain(address.index) {
            sum = sum.wrapping_add(self.register(number, 8)?.wrapping_mul(scale.into()));
        }
        (!address.is_elsewhere).then_some(sum)
    }

    fn byte(&self, address: u64) -> Result<Option<u8>> {
        if self.clobbered.iter().any(|(from, end)| (*from..*end).contains(&address)) {
            return Ok(None);
        }
        if let Some(stored) = self.stored.get(&address) {
            return Ok(*stored);
        }
        let offset = address.wrapping_sub(self.page);
        ensure!(offset < PAGE, "loads from {address:#x}, which is not what the processor found");
        Ok(Some((self.memory[(offset / 8) as usize] >> (offset % 8 * 8)) as u8))
    }

    fn value(&self, expression: &Expression) -> Result<Number> {
        Ok(match expression {
            Expression::Constant(number) => Some(*number),
            Expression::Register { number, width } => self.register(*number, *width),
            Expression::Temporary(temporary) => self.temporaries[usize::from(*temporary)],
            Expression::Lane { vector, lane } => self.lanes[usize::from(*vector)][usize::from(*lane)],
            Expression::Load { address, width } => {
                let Some(address) = self.address(address) else { return Ok(None) };
                let mut bytes = (0..u64::from(*width)).rev();
                bytes.try_fold(Some(0), |value: Number, byte| {
                    let byte = self.byte(address.wrapping_add(byte))?;
                    anyhow::Ok(value.zip(byte).map(|(value, byte)| value << 8 | u64::from(byte)))
                })?
            }
            Expression::Address(address) => self.address(address),
            Expression::Computed(operation, of) => {
                let of: Option<Vec<u64>> = of.iter().map(|part| self.value(part)).collect::<Result<_>>()?;
                match of {
                    Some(of) => computed(*operation, &of)?,
                    None => None,
                }
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
        match test {
            Test::Compared(relation) => self.relation_holds(relation),
            Test::Zero { register, width, is_zero } => Some((self.register(register, width)? == 0) == is_zero),
            Test::Bit { register, bit, is_set } => Some((self.register(register, 8)? >> bit & 1 == 1) == is_set),
            Test::Unknown => None,
        }
    }

    fn relation_holds(&self, relation: Relation) -> Option<bool> {
        let (left, right, bits) = match self.compared {
            Compared::Before => return x86_64::holds(relation, self.before.flags),
            Compared::Sides(left, right, bits) => (left?, right?, bits),
            Compared::Result(of, bits) if ZERO_AND_SIGN.contains(&relation) => (of?, 0, bits),
            Compared::Result(..) | Compared::Unknown => return None,
        };
        let [left, right, difference] = [left, right, left.wrapping_sub(right)].map(|number| number << (64 - bits));
        let [signed_left, signed_right] = [left, right].map(u64::cast_signed);
        Some(match relation {
            Relation::Equal => left == right,
            Relation::NotEqual => left != right,
            Relation::Below => left < right,
            Relation::BelowOrEqual => left <= right,
            Relation::Above => left > right,
            Relation::AboveOrEqual => left >= right,
            Relation::Less => signed_left < signed_right,
            Relation::LessOrEqual => signed_left <= signed_right,
            Relation::Greater => signed_left > signed_right,
            Relation::GreaterOrEqual => signed_left >= signed_right,
            Relation::Negative => difference.cast_signed() < 0,
            Relation::NotNegative => difference.cast_signed() >= 0,
            Relation::Other(_) => return None,
        })
    }

    /// Fails unless the processor left what the effects say.
    fn agree(&self, answer: &Answer) -> Result<()> {
        for (number, (said, unknown)) in self.registers.iter().enumerate() {
            let is = answer.state.registers[number];
            ensure!(said & !unknown == is & !unknown, "register {number} is {is:#x}, not {said:#x} (except {unknown:#x})");
        }
        for (at, said) in self.lanes.as_flattened().iter().enumerate() {
            let is = answer.state.lanes.as_flattened()[at];
            let (vector, lane) = (at / LANES, at % LANES);
            ensure!(said.is_none_or(|said| said == is), "lane {lane} of vector {vector} is {is:#x}, not {said:#x?}");
        }
        let words = answer.changes.iter().flat_map(|(at, word)| (*at as u64..).zip(word.to_le_bytes()));
        let changed: BTreeMap<u64, u8> = words.map(|(at, byte)| (self.page + at, byte)).collect();
        for address in changed.keys().chain(self.stored.keys()) {
            let Some(said) = self.byte(*address)? else { continue };
            let offset = address.wrapping_sub(self.page);
            ensure!(offset < PAGE, "stores to {address:#x}, where the processor cannot");
            let word = self.memory[(offset / 8) as usize];
            let is = changed.get(address).copied().unwrap_or((word >> (offset % 8 * 8)) as u8);
            ensure!(said == is, "the byte at {offset:#x} of the page is {is:#x}, not {said:#x}");
        }
        let (before, after) = (self.before.flags, answer.state.flags);
        if matches!(self.compared, Compared::Before) {
            ensure!(before == after, "the flags were {before:#x} and are {after:#x}");
        }
        for relation in EXACT.into_iter().chain(ZERO_AND_SIGN) {
            let (said, is) = (self.relation_holds(relation), x86_64::holds(relation, after));
            ensure!(said.is_none() || said == is, "of {relation:?} it says {said:?}, but the flags are {after:#x}");
        }
        Ok(())
    }
}

fn low(value: u64, bits: u8) -> u64 {
    if bits < 64 { value & ((1 << bits) - 1) } else { value }
}

fn signed(value: u64, bits: u8) -> i64 {
    (value << (64 - bits)).cast_signed() >> (64 - bits)
}

/// Computes what an operation says; `None` where processors may differ, or cannot do it.
fn computed(operation: Operation, of: &[u64]) -> Result<Number> {
    let of_doubles = |result: f64| (!result.is_nan()).then(|| result.to_bits());
    let by = |by: u64, bits: u8| by & if bits == 64 { 63 } else { 31 };
    Ok(match (operation, of) {
        (Operation::Add, [left, right]) => Some(left.wrapping_add(*right)),
        (Operation::Subtract, [left, right]) => Some(left.wrapping_sub(*right)),
        (Operation::Multiply, [left, right]) => Some(left.wrapping_mul(*right)),
        (Operation::And, [left, right]) => Some(left & right),
        (Operation::Or, [left, right]) => Some(left | right),
        (Operation::Xor, [left, right]) => Some(left ^ right),
        (Operation::ZeroExtend(bits), [of]) => Some(low(*of, bits)),
        (Operation::SignExtend(bits), [of]) => Some(signed(*of, bits).cast_unsigned()),
        (Operation::ShiftLeft(bits), [of, count]) => Some(of << by(*count, bits)),
        (Operation::ShiftRight(bits), [of, count]) => Some(low(*of, bits) >> by(*count, bits)),
        (Operation::ShiftRightSigned(bits), [of, count]) => {
            Some((signed(*of, bits) >> by(*count, bits)).cast_unsigned())
        }
        (Operation::UpperHalf, [left, right]) => {
            let [left, right] = [left, right].map(|number| i128::from(number.cast_signed()));
            Some(((left * right) >> 64) as u64)
        }
        (Operation::Whole, [upper, lower, by]) => {
            let dividend = (u128::from(*upper) << 64 | u128::from(*lower)).cast_signed();
            dividend.checked_div(by.cast_signed().into()).map(|quotient| quotient as u64)
        }
        (Operation::Double, [of]) => of_doubles(of.cast_signed() as f64),
        (Operation::DoubleProduct, [left, right]) => of_doubles(f64::from_bits(*left) * f64::from_bits(*right)),
        (Operation::DoubleQuotient, [left, right]) => of_doubles(f64::from_bits(*left) / f64::from_bits(*right)),
        (Operation::DoubleProductAndSum, [left, right, added]) => {
            let [left, right, added] = [left, right, added].map(|bits| f64::from_bits(*bits));
            of_doubles(left.mul_add(right, added))
        }
        _ => bail!("{operation:?} of {} numbers", of.len()),
    })
}
