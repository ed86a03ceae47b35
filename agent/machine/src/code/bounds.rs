//! Where functions begin and end in a file whose unwind tables do not say.
//!
//! One begins at each name, and wherever a call leads. It ends where the next one begins, less the padding between.

use std::collections::{BTreeSet, HashMap};

use evictscope_model::FileAddress;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::instruction::{address, callee, next_address};
use crate::elf::frames::Frame;
use crate::elf::image::Image;

/// Bytes of code that are decoded in a step.
const BYTES_OF_STEP: u64 = 8;

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
        for instruction in Decoder::with_ip(64, code, begin.get(), DecoderOptions::NONE) {
            starts.extend(callee(&instruction).filter(|callee| image.is_code(*callee)));
            if matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
                let at = address(&instruction);
                padding.insert(next_address(&instruction), padding.get(&at).copied().unwrap_or(at));
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
