//! The tables of `switch` statements.
//!
//! A jump goes to the sum of an anchor and what it loads from a table of distances. They have 1, 2 or 4 bytes, and most
//! count instructions. The anchor can be the table.

use evictscope_model::FileAddress;
use fARM64::{Code, Operand};

use super::decode::decoded;
use super::operands::general;
use crate::elf::image::Image;
use crate::ir::{Effect, Expression, Flow, Instruction, Operation, Relation, Test, bit};
use crate::isa::table::{Check, MAX_TABLE, Targets, entries};

/// How many instructions before an indirect jump the table may be read.
const READ_DISTANCE: usize = 24;
/// How many instructions away the addresses of table and anchor may be computed.
const TABLE_DISTANCE: usize = 4_096;
/// In how many steps.
const MAX_STEPS: usize = 4;

/// Returns the targets of `jump`, which is part of the function at `entry`: the entries of the table that the jump
/// reads, as many as the check of the index lets through. `before` has the instructions before the jump, the nearest
/// first.
pub fn targets<'a>(
    image: &Image<'_>,
    entry: FileAddress,
    jump: &Instruction,
    before: impl Iterator<Item = &'a Instruction>,
) -> Targets {
    let before: Vec<&Instruction> = before.take(TABLE_DISTANCE).collect();
    found(image, entry, jump, &before).unwrap_or_default()
}

fn found(image: &Image<'_>, entry: FileAddress, jump: &Instruction, before: &[&Instruction]) -> Option<Targets> {
    let Flow::IndirectJump(to) = &jump.flow else { return None };
    let Expression::Register { number: to, .. } = **to else { return None };
    let (sum, before_sum) = writer(before, to)?;
    let word = decoded(sum).word();
    let [anchor, distance] = [5, 16].map(|at| (word >> at & 31) as u8);
    let (scale, is_extended) = match decoded(sum).code() {
        Code::AddExtended64 => (1_u64 << (word >> 10 & 7), word >> 13 & 4 != 0),
        Code::AddShifted64 if word >> 22 & 3 == 0 => (1_u64.checked_shl(word >> 10 & 63)?, false),
        _ => return None,
    };
    // A sum that is not shifted can have them in any order.
    let sides = [(anchor, distance), (distance, anchor)];
    let mut sides = sides.into_iter().take(if scale == 1 { 2 } else { 1 });
    let (anchor, read, before_read) = sides.find_map(|(anchor, distance)| {
        let (read, rest) = writer(before_sum, distance)?;
        matches!(decoded(read).op(1), Operand::MemExt { .. }).then_some((anchor, read, rest))
    })?;
    let Operand::MemExt { base, index, .. } = decoded(read).op(1) else { return None };
    let (width, is_signed) = match decoded(read).code() {
        Code::LdrbReg => (1, is_extended),
        Code::LdrhReg => (2, is_extended),
        Code::LdrReg32 => (4, is_extended),
        Code::LdrswReg => (4, true),
        _ => return None,
    };
    let check = check(read, before_read, general(index)?);
    let length = check.as_ref().map_or(MAX_TABLE, |check| check.last.saturating_add(1).min(MAX_TABLE));
    let base = general(base)?;
    let table = address_in(before_read, base)?;
    let anchor = if anchor == base { table } else { address_in(before_sum, anchor)? };
    let all = entries(image, entry, length, |index| {
        let bytes = image.bytes_at(table.wrapping_add(width * index))?.get(..width as usize)?;
        let unused = 64 - 8 * width;
        let distance = bytes.iter().rev().fold(0, |distance, byte| distance << 8 | u64::from(*byte)) << unused;
        let distance = if is_signed { (distance.cast_signed() >> unused).cast_unsigned() } else { distance >> unused };
        Some(anchor.wrapping_add(distance.wrapping_mul(scale)))
    });
    Some(Targets { all, check: check.map(|check| check.at) })
}

fn writes(instruction: &Instruction, register: u8) -> bool {
    instruction.effects().iter().any(|effect| effect.writes() & bit(register) != 0)
}

/// Returns the nearest instruction that writes a register, and what comes before it; `None` if control can have come
/// from elsewhere.
fn writer<'a, 'b>(before: &'b [&'a Instruction], register: u8) -> Option<(&'a Instruction, &'b [&'a Instruction])> {
    let near = before.get(..READ_DISTANCE).unwrap_or(before);
    let at = near.iter().position(|other| other.flow != Flow::Next || writes(other, register))?;
    let writer = before.get(at).filter(|writer| writer.flow == Flow::Next)?;
    Some((*writer, before.get(at + 1..)?))
}

/// Returns the address that a register was loaded with last.
fn address_in(mut before: &[&Instruction], mut register: u8) -> Option<FileAddress> {
    let mut added = 0_u64;
    for _ in 0..MAX_STEPS {
        let at = before.iter().position(|other| writes(other, register))?;
        let [Effect::Set { width: 8, value, .. }] = before.get(at)?.effects() else { return None };
        before = before.get(at + 1..)?;
        match value {
            Expression::Address(address) => return address.global().map(|at| FileAddress::new(at.wrapping_add(added))),
            Expression::Register { number, width: 8 } => register = *number,
            Expression::Computed(Operation::Add, of) => match &**of {
                [Expression::Register { number, width: 8 }, Expression::Constant(more)] => {
                    register = *number;
                    added = added.wrapping_add(*more);
                }
                _ => return None,
            },
            _ => return None,
        }
    }
    None
}

/// A number that is made of one register.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    register: u8,
    /// The bits of it that count.
    bits: u64,
}

impl Part {
    fn of(expression: &Expression) -> Option<Self> {
        match expression {
            // Of an index, the upper half is 0.
            Expression::Register { number, width: 4.. } => Some(Self { register: *number, bits: u64::MAX }),
            Expression::Register { number, width } => Some(Self { register: *number, bits: (1 << (8 * width)) - 1 }),
            Expression::Computed(Operation::And, of) => match &**of {
                [register, Expression::Constant(bits)] if *bits <= u32::MAX.into() => {
                    let part = Self::of(register)?;
                    Some(Self { bits: part.bits & bits, ..part })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns what it is made of before an effect; `None` if that is not such a number.
    fn before(self, effect: &Effect) -> Option<Self> {
        match effect {
            _ if effect.writes() & bit(self.register) == 0 => Some(self),
            Effect::Set { value, width: 4.., .. } => {
                let part = Self::of(value)?;
                Some(Self { bits: part.bits & self.bits, ..part })
            }
            _ => None,
        }
    }
}

/// The check of an index.
struct IndexCheck {
    at: Check,
    /// The last index that it lets through.
    last: u64,
}

/// Returns the check of the index with which `read` reads the table: `cmp index, last; b.hi`, or `b.ls` to the block of
/// the jump, after which the index is only moved, or made in the same way once more. Returns `None` if it is not
/// certain that this is what is checked.
fn check(read: &Instruction, before: &[&Instruction], index: u8) -> Option<IndexCheck> {
    let mut index = Part { register: index, bits: u64::MAX };
    let mut compared: Option<(Part, u64)> = None;
    let (mut is_guarded, mut joined) = (false, None);
    let mut rest = before.iter();
    let mut begin = read.address;
    for _ in 0..READ_DISTANCE {
        let instruction = rest.next()?;
        let behind = std::mem::replace(&mut begin, instruction.address);
        match instruction.flow {
            Flow::Next => {}
            _ if compared.is_some() => return None,
            Flow::Branch(test, target) if !(instruction.address..=read.address).contains(&target) => {
                is_guarded = test == Test::Compared(Relation::Above);
                continue;
            }
            // Control comes by a branch.
            Flow::Return | Flow::Jump(_) | Flow::Stop | Flow::Call(_) if !is_guarded && joined.is_none() => {
                let leads = Flow::Branch(Test::Compared(Relation::BelowOrEqual), behind);
                joined = Some((rest.find(|other| other.flow == leads)?.address, behind));
                is_guarded = true;
                continue;
            }
            _ => return None,
        }
        for effect in instruction.effects().iter().rev() {
            index = index.before(effect)?;
            match (&mut compared, effect) {
                (Some((part, _)), _) => *part = part.before(effect)?,
                (None, Effect::Compare { left, right: Expression::Constant(last), bits: 32.. }) if is_guarded => {
                    compared = Some((Part::of(left)?, *last));
                }
                (None, Effect::Compare { .. } | Effect::CompareIf { .. } | Effect::ZeroAndSign { .. })
                    if is_guarded =>
                {
                    return None;
                }
                (None, Effect::Clobber(clobber)) if clobber.flags && is_guarded => return None,
                _ => {}
            }
            if let Some((_, last)) = compared.filter(|(part, _)| *part == index) {
                return Some(IndexCheck { at: Check { at: instruction.address, joined }, last });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;
    use evictscope_testkit::compiler::compile;

    use crate::code::graph::{EdgeKind, FunctionCode};
    use crate::elf::image::Image;
    use crate::isa::Architecture;
    use crate::isa::table::tests::{PROGRAM, cases};

    #[test]
    fn a_table_has_as_many_entries_as_there_are_cases() {
        for options in [&["-O1"][..], &["-O1", "-fno-pie", "-no-pie"], &["-Os", "-mbranch-protection=standard"]] {
            // Without it, a table needs more cases.
            let options = [options, &["--param=case-values-threshold=4"]].concat();
            let Some(data) = compile("aarch64-linux-gnu-gcc", PROGRAM, &options) else { return };
            assert_eq!(cases(&data), [6, 9], "{options:?}");
        }
    }

    /// `adr x1, table`, `ldrb w1, [x1, w0, uxtw]` and `ldrb w1, [x1, x10]`.
    const TABLE: u32 = 0x1000_0161;
    const READ: [u32; 2] = [0x3860_4821, 0x386a_6821];
    /// `adr x2, 1f; add x1, x2, w1, sxtb #2; br x1; 1: mov w0, #1; ret; mov w0, #2; ret; mov w0, #3; ret; table:`, with
    /// three distances, and others.
    const JUMP: [u32; 11] = [
        0x1000_0062,
        0x8b21_8841,
        0xd61f_0020,
        0x5280_0020,
        0xd65f_03c0,
        0x5280_0040,
        0xd65f_03c0,
        0x5280_0060,
        0xd65f_03c0,
        0x0104_0200,
        0x0103_0501,
    ];

    /// Returns where a function can jump by its table, if that is trusted.
    fn ways(words: &[u32]) -> Option<usize> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let address = FileAddress::new(0x1000);
        let mut image = Image::of_code(&bytes, address);
        image.architecture = Architecture::Aarch64;
        let code = FunctionCode::decode(&image, address).unwrap_or_else(|error| panic!("{error}"));
        let edges = code.blocks.iter().flat_map(|block| &block.successors);
        let count = edges.filter(|(_, kind)| *kind == EdgeKind::Switch).count();
        code.unresolved_jumps.is_empty().then_some(count)
    }

    #[test]
    fn a_check_can_lead_to_the_jump_or_be_of_the_same_bits() {
        // `cmp w0, #2; b.ls 1f; ret; 1:`, and `cbz w3, 1f` before it.
        let joined = [&[0x7100_081f, 0x5400_0049, 0xd65f_03c0, TABLE, READ[0]][..], &JUMP].concat();
        assert_eq!(ways(&joined), Some(3));
        assert_eq!(ways(&[&[0x3400_0083], &joined[..]].concat()), None);
        // `and w9, w8, #7; cmp w9, #2; b.hi 1f; and x10, x8, #7`, or `#15`.
        for (mask, expected) in [(0x9240_090a, 3), (0x9240_0d0a, 6)] {
            let masked = [&[0x1200_0909, 0x7100_093f, 0x5400_00e8, mask, TABLE, READ[1]][..], &JUMP].concat();
            assert_eq!(ways(&masked), Some(expected));
        }
    }
}
