//! Where functions begin and end in a file whose unwind tables do not say.
//!
//! One begins at each name, and wherever a call leads. It ends where the next one begins, less the padding between.

use std::collections::{BTreeSet, HashMap};

use evictscope_model::FileAddress;

use crate::elf::frames::Frame;
use crate::elf::image::Image;

/// Bytes of code that are decoded in a step.
const BYTES_OF_STEP: u64 = 8;
/// Memory for where a function begins, or padding does, in bytes.
const BYTES_OF_PLACE: usize = 64;

/// Adds the functions that the unwind tables lack, if they cover less than three quarters of the code.
pub fn complete(image: &mut Image<'_>) {
    let size: u64 = image.code().map(|(_, code)| code.len() as u64).sum();
    let lengths = image.frames.iter().filter_map(|frame| frame.end.checked_sub(frame.start));
    let covered = lengths.fold(0, u64::saturating_add);
    if covered > size / 4 * 3 || !image.budget.spend(size / BYTES_OF_STEP) {
        return;
    }
    let mut starts: BTreeSet<FileAddress> = image.symbols.function_names().map(|(address, _)| address).collect();
    starts.extend(image.frames.iter().map(|frame| frame.start));
    // Where padding begins, by where it ends.
    let mut padding = HashMap::new();
    for (begin, code) in image.code() {
        let mut padded_from = None;
        for instruction in image.architecture.decode_all(code, begin) {
            if image.architecture.is_padding(&instruction) {
                padded_from.get_or_insert(instruction.address);
                continue;
            }
            let before = padding.len() + starts.len();
            padding.extend(padded_from.take().map(|from| (instruction.address, from)));
            starts.extend(instruction.callee().filter(|callee| image.is_code(*callee)));
            if !image.budget.keep(BYTES_OF_PLACE * (padding.len() + starts.len() - before)) {
                return;
            }
        }
        starts.insert(begin.wrapping_add(code.len() as u64));
    }
    let function = |(start, next): (&FileAddress, &FileAddress)| {
        let is_new = image.is_code(*start) && image.frames.at(*start).is_none();
        let end = padding.get(next).copied().unwrap_or(*next);
        is_new.then_some(Frame { start: *start, end, is_entry: true, offset: usize::MAX })
    };
    let found: Vec<Frame> = starts.iter().zip(starts.iter().skip(1)).filter_map(function).collect();
    image.frames.extend(found);
}
