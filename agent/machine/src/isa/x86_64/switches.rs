//! The targets of a `switch`: the entries of the table that an indirect jump reads.

use evictscope_model::FileAddress;
use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction as Decoded, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::decode::decoded;
use super::lift::writes;
use super::operands::is_high_byte;
use crate::elf::image::Image;
use crate::ir::{Expression, Flow, Instruction};
use crate::isa::table::{Check, MAX_TABLE, Targets, entries};

/// How many instructions before an indirect jump the address of its table may be loaded.
const TABLE_DISTANCE: usize = 64;
/// How many instructions away it may be loaded into the register that the jump uses.
const LOOP_DISTANCE: usize = 4_096;
/// The most tables that one jump may use if it is not certain which.
const MAX_TABLES: usize = 4;
/// The second byte of `lea` to a register of 8 bytes.
const LEA: u8 = 0x8d;

#[derive(Clone, Copy)]
struct IndexCheck {
    at: FileAddress,
    /// The last index that it lets through.
    last: u64,
}

/// Returns the targets of `jump`, which is part of the function at `entry`: the entries of the table whose address is
/// loaded last before the jump, as many as the check of the index lets through. Without a check, they extend up to the
/// first that lies outside the function, and some may belong to the next table and lead nowhere. `before` has the
/// instructions before the jump, the nearest first, and `behind` those that follow it.
pub fn targets<'a>(
    image: &Image<'_>,
    entry: FileAddress,
    jump: &Instruction,
    before: impl Iterator<Item = &'a Instruction> + Clone,
    behind: impl Iterator<Item = &'a Instruction>,
) -> Targets {
    let Flow::IndirectJump(to) = &jump.flow else { return Targets::default() };
    let near: Vec<Decoded> = before.clone().take(TABLE_DISTANCE).map(decoded).collect();
    let read = match **to {
        Expression::Load { .. } => Some(decoded(jump)),
        Expression::Register { number, .. } => offset_load(Register::RAX + u32::from(number), &near),
        _ => None,
    };
    let check = read.and_then(|read| check(&read, &near));
    let length = check.map_or(MAX_TABLE, |check| check.last.saturating_add(1).min(MAX_TABLE));
    let found = |all| Targets { all, check: check.map(|check| Check { at: check.at, joined: None }) };
    // jmp *table(,%index,8)
    if let Expression::Load { address, .. } = &**to {
        if address.base.is_some() || address.index.is_none_or(|index| index.scale != 8) {
            return Targets::default();
        }
        let table = FileAddress::new(address.displacement);
        return found(entries(image, entry, length, |index| image.pointer_at(table.wrapping_add(8 * index))));
    }
    // lea table(%rip), %base; movslq (%base,%index,4), %offset; add %base, %offset; jmp *%offset
    let base = read.map(|read| read.memory_base());
    let is_load = |load: &Decoded| {
        load.code() == Code::Lea_r64_m
            && load.memory_base() == Register::RIP
            && base.is_none_or(|base| load.op0_register() == base)
    };
    let table = |load: &Decoded| is_load(load).then(|| FileAddress::new(load.memory_displacement64()));
    let targets = |table: FileAddress| {
        entries(image, entry, length, |index| {
            let offset = image.i32_at(table.wrapping_add(4 * index))?;
            Some(table.wrapping_add(i64::from(offset).cast_unsigned()))
        })
    };
    if let Some(targets) = near.iter().filter_map(table).map(targets).find(|targets| !targets.is_empty()) {
        return found(targets);
    }
    // If the jump is in a loop, the address is loaded before it, farther away.
    let far = before.chain(behind).take(LOOP_DISTANCE).filter(|_| base.is_some());
    let far = far.filter(|instruction| instruction.bytes().get(1) == Some(&LEA));
    let mut tables: Vec<FileAddress> = far.filter_map(|load| table(&decoded(load))).collect();
    tables.sort_unstable();
    tables.dedup();
    let tables: Vec<_> = tables.into_iter().map(targets).filter(|targets| !targets.is_empty()).collect();
    if tables.len() > MAX_TABLES {
        return Targets::default();
    }
    let mut all = tables.concat();
    all.sort_unstable();
    all.dedup();
    found(all)
}

/// Returns the instruction that loads from a table the distance that a jump to `to` jumps.
fn offset_load(to: Register, before: &[Decoded]) -> Option<Decoded> {
    let loads = |load: &&Decoded| {
        load.code() == Code::Movsxd_r64_rm32
            && load.memory_index_scale() == 4
            && (load.op0_register() == to || load.memory_base() == to)
    };
    before.iter().find(loads).copied()
}

/// Returns the check of the index with which `read` reads the table: `cmp $last, %index; ja`, after which the index is
/// only moved. Returns `None` if it is not certain that this is what is checked.
fn check(read: &Decoded, before: &[Decoded]) -> Option<IndexCheck> {
    let mut info = InstructionInfoFactory::new();
    let mut index = read.memory_index().full_register();
    // How many of its low bytes determine it.
    let mut width = 8;
    let mut is_guarded = false;
    // A check of too few bytes, until it is certain that the others are 0.
    let mut narrow: Option<(IndexCheck, usize)> = None;
    for instruction in before.iter().filter(|other| other.ip() < read.ip()) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch => {
                let past = instruction.ip()..=read.ip();
                if past.contains(&instruction.near_branch_target()) {
                    return None;
                }
                is_guarded = instruction.condition_code() == ConditionCode::a;
                continue;
            }
            _ => return None,
        }
        let to = instruction.op0_register();
        let is_index = instruction.op0_kind() == OpKind::Register && is_low_part(to, index);
        if is_guarded && narrow.is_none() && instruction.rflags_modified() != 0 {
            is_guarded = false;
            let last = instruction.try_immediate(1).ok();
            if let Some(last) = last.filter(|_| is_index && instruction.mnemonic() == Mnemonic::Cmp) {
                let check = IndexCheck { at: FileAddress::new(instruction.ip()), last };
                // A 32-bit number is a 64-bit index only if the upper half is 0.
                if to.size() >= width.min(4) {
                    return Some(check);
                }
                narrow = Some((check, to.size()));
            }
        }
        let used = info.info(instruction).used_registers();
        let is_written = used.iter().any(|used| writes(used.access()) && used.register().full_register() == index);
        if !is_written {
            continue;
        }
        let from = instruction.op1_register();
        let extended = match instruction.mnemonic() {
            Mnemonic::Movzx => instruction.memory_size().size().max(from.size()),
            Mnemonic::Mov | Mnemonic::Movsxd => from.size(),
            _ => return None,
        };
        if let Some((check, checked)) = narrow {
            let is_certain =
                instruction.mnemonic() == Mnemonic::Movzx && (is_index && to.size() >= 4) && extended <= checked;
            return is_certain.then_some(IndexCheck { at: FileAddress::new(instruction.ip()), ..check });
        }
        if !is_index || to.size() < 4 || !is_low_part(from, from.full_register()) {
            return None;
        }
        index = from.full_register();
        width = width.min(extended);
    }
    None
}

/// Returns whether a register is the lowest bytes of a general register, or all of them.
fn is_low_part(register: Register, whole: Register) -> bool {
    register.is_gpr() && register.full_register() == whole && !is_high_byte(register)
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;
    use evictscope_testkit::compiler::compile;
    use iced_x86::{Decoder, DecoderOptions, Instruction as Decoded};

    use super::check;
    use crate::code::graph::FunctionCode;
    use crate::elf::image::Image;
    use crate::isa::table::tests::{PROGRAM, cases};

    #[test]
    fn a_table_has_as_many_entries_as_there_are_cases() {
        for compiler in ["gcc", "clang"] {
            for options in [&["-O1"][..], &["-O2"], &["-O2", "-fno-pie", "-no-pie"], &["-Os", "-fcf-protection"]] {
                let Some(data) = compile(compiler, PROGRAM, options) else { continue };
                assert_eq!(cases(&data), [6, 9], "{compiler} {options:?}");
            }
        }
    }

    /// `lea table(%rip), %rbx; mov $0x06060606, %ecx`, `padding` times `nop`, `check`, then `movzbl %al, %eax; movslq
    /// (%rbx,%rax,4), %rax; add %rbx, %rax; jmp *%rax; 1: nop; 2: ret`, and a table of 1, 2 and the middle of the
    /// `mov`, where 0x06 is not an instruction.
    fn function(padding: usize, check: &[u8]) -> FunctionCode {
        let mut code = vec![0x48, 0x8d, 0x1d, 0, 0, 0, 0, 0xb9, 6, 6, 6, 6];
        code.extend(std::iter::repeat_n(0x90, padding));
        code.extend(check);
        code.extend([0x0f, 0xb6, 0xc0, 0x48, 0x63, 0x04, 0x83, 0x48, 0x01, 0xd8]);
        code.extend([0xff, 0xe0, 0x90, 0xc3]);
        let length = i32::try_from(code.len()).unwrap_or(i32::MAX);
        code[3..7].copy_from_slice(&(length - 7).to_le_bytes());
        for target in [length - 2, length - 1, 8] {
            code.extend((target - length).to_le_bytes());
        }
        let address = FileAddress::new(0x1000);
        let image = Image::of_code(&code, address);
        FunctionCode::decode(&image, address).unwrap_or_else(|why| panic!("{why}"))
    }

    #[test]
    fn a_table_ends_where_the_check_says_or_what_no_instruction_is_at() {
        // `cmp $1, %al; ja` to the `ret`, and the same with a `je` past it.
        let (check, jumped_past): (&[u8], &[u8]) = (&[0x3c, 0x01, 0x77, 0x0d], &[0x74, 0x04, 0x3c, 0x01, 0x77, 0x0d]);
        for (padding, check, expected) in
            [(0, check, Some(10)), (100, check, Some(110)), (0, &[], Some(8)), (0, jumped_past, None)]
        {
            let code = function(padding, check);
            let instructions: usize = code.blocks.iter().map(|block| block.instructions.len()).sum();
            // A check that something jumps past is not trusted.
            assert_eq!(code.unresolved_jumps.len(), usize::from(expected.is_none()), "{code:?}");
            assert!(expected.is_none_or(|expected| expected == instructions), "{code:?}");
        }
    }

    /// Returns the last index that is let through if `code` precedes `movslq (%rbx,%rax,4), %rax`.
    fn last_index(code: &[u8]) -> Option<u64> {
        let code = [code, &[0x48, 0x63, 0x04, 0x83]].concat();
        let decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
        let mut before: Vec<Decoded> = decoder.into_iter().collect();
        let read = before.pop()?;
        before.reverse();
        check(&read, &before).map(|check| check.last)
    }

    #[test]
    fn a_check_counts_where_it_is_certainly_that_of_the_index() {
        // `cmp $5, %eax; ja`, and the same for %al, %ax, %ah.
        let whole: &[u8] = &[0x83, 0xf8, 0x05, 0x77, 0x20];
        let byte: &[u8] = &[0x3c, 0x05, 0x77, 0x20];
        let word: &[u8] = &[0x66, 0x83, 0xf8, 0x05, 0x77, 0x20];
        let high: &[u8] = &[0x80, 0xfc, 0x05, 0x77, 0x20];
        let (extend_byte, extend_word): (&[u8], &[u8]) = (&[0x0f, 0xb6, 0xc0], &[0x0f, 0xb7, 0xc0]);
        for code in [
            whole.to_vec(),
            // A conditional jump away, and a move.
            [whole, &[0x85, 0xc9, 0x74, 0x20, 0x89, 0xc0]].concat(),
            [byte, extend_byte].concat(),
            [extend_byte, byte].concat(),
            [word, extend_word].concat(),
        ] {
            assert_eq!(last_index(&code), Some(5), "{code:x?}");
        }
        for code in [
            // `xchg`, `cltq`, `div`, `shl`, `sub`, `lea -1(%rax)` of the index, a call.
            [whole, &[0x91]].concat(),
            [whole, &[0x48, 0x98]].concat(),
            [whole, &[0xf7, 0xf1]].concat(),
            [whole, &[0xd1, 0xe0]].concat(),
            [whole, &[0x83, 0xe8, 0x01]].concat(),
            [whole, &[0x8d, 0x40, 0xff]].concat(),
            [whole, &[0xe8, 0, 0, 0, 0]].concat(),
            // `ja` on other flags, over the check only, and another condition.
            vec![0x83, 0xf8, 0x05, 0x85, 0xc9, 0x77, 0x20],
            vec![0x83, 0xf8, 0x05, 0x77, 0x00],
            vec![0x83, 0xf8, 0x05, 0x76, 0x20],
            // A jump over a move of something else.
            [whole, &[0x74, 0x02, 0x89, 0xc8]].concat(),
            // Fewer bits than the index has, and a check of memory.
            byte.to_vec(),
            word.to_vec(),
            [word, extend_byte, &[0x01, 0xc8]].concat(),
            [high, extend_byte].concat(),
            [extend_word, byte].concat(),
            vec![0x83, 0x3c, 0x24, 0x05, 0x77, 0x20, 0x8b, 0x04, 0x24],
        ] {
            assert_eq!(last_index(&code), None, "{code:x?}");
        }
    }
}
