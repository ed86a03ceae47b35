//! The targets of a `switch`: the entries of the table that an indirect jump reads.

use evictscope_model::FileAddress;
use iced_x86::{Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::instruction::{address, target, writes};
use crate::elf::image::Image;

/// The most entries of one table.
const MAX_TABLE: u64 = 512;
/// How many instructions before an indirect jump the address of its table may be loaded.
const TABLE_DISTANCE: usize = 64;
/// How many instructions away it may be loaded into the register that the jump uses.
const LOOP_DISTANCE: usize = 4_096;
/// The most tables that one jump may use if it is not certain which.
const MAX_TABLES: usize = 4;
/// How far a function extends if the file does not say, in bytes.
const DEFAULT_SIZE: u64 = 64 << 10;

/// Where a jump can lead.
#[derive(Default)]
pub struct Targets {
    pub all: Vec<FileAddress>,
    /// The check that limits them, if any: nothing may jump past it to code up to the indirect jump.
    pub check: Option<FileAddress>,
}

/// The check of an index.
#[derive(Clone, Copy)]
struct Check {
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
    let near: Vec<&Instruction> = before.clone().take(TABLE_DISTANCE).collect();
    let read = match jump.op0_kind() {
        OpKind::Memory => Some(jump),
        _ => offset_load(jump, &near),
    };
    let check = read.and_then(|read| check(read, &near));
    let length = check.map_or(MAX_TABLE, |check| check.last.saturating_add(1).min(MAX_TABLE));
    let found = |all| Targets { all, check: check.map(|check| check.at) };
    // jmp *table(,%index,8)
    if jump.op0_kind() == OpKind::Memory {
        if jump.memory_index_scale() != 8 || jump.memory_base() != Register::None {
            return Targets::default();
        }
        let table = FileAddress::new(jump.memory_displacement64());
        return found(entries(image, entry, length, |index| image.pointer_at(table.wrapping_add(8 * index))));
    }
    // lea table(%rip), %base; movslq (%base,%index,4), %offset; add %base, %offset; jmp *%offset
    let base = read.map(Instruction::memory_base);
    let is_load = |load: &&Instruction| {
        load.code() == Code::Lea_r64_m
            && load.memory_base() == Register::RIP
            && base.is_none_or(|base| load.op0_register() == base)
    };
    let targets = |load: &Instruction| {
        let table = FileAddress::new(load.memory_displacement64());
        entries(image, entry, length, |index| {
            let offset = image.i32_at(table.wrapping_add(4 * index))?;
            Some(table.wrapping_add(i64::from(offset).cast_unsigned()))
        })
    };
    let mut nearest = near.iter().copied().filter(is_load).map(targets);
    if let Some(targets) = nearest.find(|targets| !targets.is_empty()) {
        return found(targets);
    }
    // If the jump is in a loop, the address is loaded before it, farther away.
    let far = before.chain(behind).take(LOOP_DISTANCE);
    let mut loads: Vec<&Instruction> = far.filter(|_| base.is_some()).filter(is_load).collect();
    loads.sort_unstable_by_key(|load| load.memory_displacement64());
    loads.dedup_by_key(|load| load.memory_displacement64());
    let tables = loads.into_iter().map(targets);
    let tables: Vec<_> = tables.filter(|targets| !targets.is_empty()).collect();
    if tables.len() > MAX_TABLES {
        return Targets::default();
    }
    let mut all = tables.concat();
    all.sort_unstable();
    all.dedup();
    found(all)
}

/// Returns the instruction that loads from a table the distance that `jump` jumps.
fn offset_load<'a>(jump: &Instruction, before: &[&'a Instruction]) -> Option<&'a Instruction> {
    let to = jump.op0_register();
    before.iter().copied().find(|load| {
        load.code() == Code::Movsxd_r64_rm32
            && load.memory_index_scale() == 4
            && (load.op0_register() == to || load.memory_base() == to)
    })
}

/// Returns the check of the index with which `read` reads the table: `cmp $last, %index; ja`, after which the index is
/// only moved. Returns `None` if it is not certain that this is what is checked.
fn check(read: &Instruction, before: &[&Instruction]) -> Option<Check> {
    let mut info = InstructionInfoFactory::new();
    let mut index = read.memory_index().full_register();
    // How many of its low bytes determine it.
    let mut width = 8;
    let mut is_guarded = false;
    // A check of too few bytes, until it is certain that the others are 0.
    let mut narrow: Option<(Check, usize)> = None;
    for instruction in before.iter().filter(|other| other.ip() < read.ip()) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch => {
                let past = instruction.ip()..=read.ip();
                if past.contains(&target(instruction).get()) {
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
                let at = address(instruction);
                let check = Check { at, last };
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
            let at = address(instruction);
            return is_certain.then_some(Check { at, ..check });
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
    let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    register.is_gpr() && register.full_register() == whole && !is_high
}

fn entries(
    image: &Image<'_>,
    entry: FileAddress,
    length: u64,
    at: impl Fn(u64) -> Option<FileAddress>,
) -> Vec<FileAddress> {
    let name = image.function_name(entry);
    let named = name.and_then(|name| image.function(name));
    let end = match (image.frames.at(entry), named.map(|symbol| symbol.size)) {
        (Some(frame), _) => frame.end,
        (None, Some(size)) if size > 0 => entry.saturating_add(size),
        (None, _) => entry.saturating_add(DEFAULT_SIZE),
    };
    let entries = (0..length).map_while(at);
    let mut targets: Vec<FileAddress> = entries.take_while(|target| (entry..end).contains(target)).collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

#[cfg(test)]
mod tests;
