//! The targets of a `switch`: the entries of the table that an indirect jump reads.

use iced_x86::{Code, Instruction, OpKind, Register};

use crate::elf::address::FileAddress;
use crate::elf::image::Image;

/// Most entries of one table.
const MAX_TABLE: usize = 512;
/// How many instructions before an indirect jump the address of its table may be loaded.
const TABLE_DISTANCE: usize = 64;
/// How far a function reaches where the file does not say, in bytes.
const DEFAULT_SIZE: u64 = 64 << 10;

/// Returns the targets of `jump`, which is part of the function at `entry`: the entries of the table
/// whose address is loaded last before the jump, up to the first that lies outside the function.
/// Entries behind the table's end that happen to lie inside only add edges, which does no harm.
/// `before` has the instructions ahead of the jump, the nearest first.
pub fn targets<'a>(
    image: &Image<'_>,
    entry: FileAddress,
    jump: &Instruction,
    before: impl Iterator<Item = &'a Instruction>,
) -> Vec<FileAddress> {
    // jmp *table(,%index,8)
    if jump.op0_kind() == OpKind::Memory && jump.memory_index_scale() == 8 {
        let table = FileAddress::new(jump.memory_displacement64());
        return entries(image, entry, |index| {
            image.pointer_at(table.wrapping_add(8 * index))
        });
    }
    // lea table(%rip), %base; movslq (%base,%index,4), %offset; add %base, %offset; jmp *%offset
    let is_load =
        |load: &&Instruction| load.code() == Code::Lea_r64_m && load.memory_base() == Register::RIP;
    let targets = before.take(TABLE_DISTANCE).filter(is_load).map(|load| {
        let table = FileAddress::new(load.memory_displacement64());
        entries(image, entry, |index| {
            let offset = image.i32_at(table.wrapping_add(4 * index))?;
            Some(table.wrapping_add(i64::from(offset).cast_unsigned()))
        })
    });
    let mut found = targets.filter(|targets| !targets.is_empty());
    found.next().unwrap_or_default()
}

fn entries(
    image: &Image<'_>,
    entry: FileAddress,
    at: impl Fn(u64) -> Option<FileAddress>,
) -> Vec<FileAddress> {
    let name = image.function_name(entry);
    let named = name.and_then(|name| image.function(name));
    let end = match (image.frames.at(entry), named.map(|symbol| symbol.size)) {
        (Some(frame), _) => frame.end,
        (None, Some(size)) if size > 0 => entry.saturating_add(size),
        (None, _) => entry.saturating_add(DEFAULT_SIZE),
    };
    let entries = (0..MAX_TABLE as u64).map_while(at);
    let mut targets: Vec<FileAddress> = entries
        .take_while(|target| (entry..end).contains(target))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}
