//! Finds the instructions that mention an address or jump to it, without decoding all of the code.
//!
//! The instruction set says which bytes may be part of such an instruction. Few of them lead to an address that is
//! looked for; those are verified by decoding the function from its start.

use std::ops::Range;

use evictscope_model::FileAddress;

use crate::elf::frames::Frame;
use crate::elf::image::Image;
use crate::ir::Instruction;

/// The most places to verify.
const MAX_CANDIDATES: usize = 512;
/// The longest function to decode for that, in bytes.
const MAX_FUNCTION: u64 = 512 << 10;
/// The most bytes to decode in total.
const MAX_DECODED: u64 = 8 << 20;

/// An instruction that mentions an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The address.
    pub target: FileAddress,
    /// The unwind table's entry that covers the instruction.
    pub frame: Frame,
}

/// Finds what mentions an address in one of `targets`, in code that the unwind tables cover. Each
/// reference is returned once.
pub fn find(image: &Image<'_>, targets: &[Range<FileAddress>]) -> Vec<Reference> {
    let lowest = targets.iter().map(|target| target.start).min();
    let highest = targets.iter().map(|target| target.end).max();
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return Vec::new() };
    // For a first comparison, the lower halves of addresses suffice.
    let span = low_half(highest.wrapping_sub(lowest));
    let is_target = |low: u32| {
        low.wrapping_sub(low_half(lowest.get())) < span
            && targets.iter().any(|target| {
                let length = low_half(target.end.wrapping_sub(target.start));
                low.wrapping_sub(low_half(target.start.get())) < length
            })
    };
    let mut budget = MAX_DECODED;
    let mut candidates = 0;
    let mut found: Vec<Reference> = Vec::new();
    for code in image.code() {
        image.architecture.candidates(code, image.is_fixed, is_target, |at| {
            candidates += 1;
            if candidates <= MAX_CANDIDATES {
                let reference = verify(image, at, targets, &mut budget);
                found.extend(reference.filter(|reference| !found.contains(reference)));
            }
            candidates < MAX_CANDIDATES
        });
    }
    found
}

fn low_half(address: u64) -> u32 {
    (address & u64::from(u32::MAX)) as u32
}

/// Decodes the instruction around the four bytes at `at` and returns what it mentions, if that is a target.
fn verify(image: &Image<'_>, at: FileAddress, targets: &[Range<FileAddress>], budget: &mut u64) -> Option<Reference> {
    let frame = image.frames.at(at)?;
    let distance = at.checked_sub(frame.start)?;
    if distance > MAX_FUNCTION {
        return None;
    }
    *budget = budget.checked_sub(distance)?;
    let instruction = image.architecture.decode_over(bytes(image, frame), frame.start, at)?;
    let target =
        instruction.mentioned().into_iter().find(|address| targets.iter().any(|target| target.contains(address)))?;
    Some(Reference { target, frame })
}

/// Decodes what a table entry covers, instruction by instruction.
pub fn instructions<'data>(image: &Image<'data>, frame: Frame) -> impl Iterator<Item = Instruction> + use<'data> {
    image.architecture.decode_all(bytes(image, frame), frame.start)
}

fn bytes<'data>(image: &Image<'data>, frame: Frame) -> &'data [u8] {
    let size = usize::try_from(frame.end.wrapping_sub(frame.start).min(MAX_FUNCTION)).unwrap_or(0);
    let bytes = image.bytes_at(frame.start).unwrap_or_default();
    bytes.get(..size).unwrap_or(bytes)
}
