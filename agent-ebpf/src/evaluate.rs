//! Evaluates recipes on the registers at a probe site.

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use evictscope_abi::{EncodedRecipe, EncodedTerm, MAX_READS, REGISTERS, TermKind, WORDS};

/// The registers at a probe site, and what was read from the server's memory.
pub type SiteWords = [u64; WORDS];

/// A value that may not be known. Not an `Option`, whose absent payload the compiler leaves
/// undefined: the verifier refuses a program that so much as copies it.
#[derive(Clone, Copy)]
pub struct Known {
    /// The value; 0 if it is not known.
    pub value: u64,
    pub is_known: bool,
}

impl Known {
    pub const NOT: Self = Self { value: 0, is_known: false };
}

/// Reads what the recipes need from the server's memory, and returns whether all of it could be read.
#[inline(always)]
pub fn read_words(reads: &[EncodedTerm; MAX_READS], words: &mut SiteWords) -> bool {
    let mut faults = 0;
    for (index, read) in reads.iter().enumerate() {
        let bytes = u32::from(read.width);
        if read.kind == TermKind::Absent as u8 || bytes > 16 {
            break;
        }
        let first = REGISTERS + 2 * index;
        let address = address(read, words);
        // If it reads 4 bytes, the upper half must be 0.
        words[first] = 0;
        // SAFETY: there are two words, 16 bytes; the helper checks the address and fails if it cannot be read.
        faults |= unsafe {
            generated::bpf_probe_read_user((&raw mut words[first]).cast(), bytes, address as *const core::ffi::c_void)
        };
    }
    faults == 0
}

/// Returns the value of a recipe, once what it needs from the server's memory has been read.
#[inline(always)]
pub fn recipe(recipe: &EncodedRecipe, words: &SiteWords) -> u64 {
    let mut sum = 0_u64;
    for term in &recipe.terms {
        if term.kind == TermKind::Absent as u8 {
            break;
        }
        let mut value = term.displacement as u64;
        if term.kind == TermKind::Register as u8 {
            value = value.wrapping_add(words[usize::from(term.register) % WORDS]);
        }
        value = narrowed(term, value);
        if term.negative != 0 {
            value = value.wrapping_neg();
        }
        sum = sum.wrapping_add(value);
    }
    sum
}

/// Returns the value at a place, for example of a call's result; it is not known if the plan has no place, or
/// its memory cannot be read.
#[inline(always)]
pub fn place(place: &EncodedTerm, words: &SiteWords) -> Known {
    if place.kind == TermKind::Absent as u8 {
        return Known::NOT;
    }
    let mut value = place.displacement as u64;
    if place.kind == TermKind::Register as u8 {
        value = value.wrapping_add(words[usize::from(place.register) % REGISTERS]);
    } else if place.kind != TermKind::Constant as u8 {
        match read_user(address(place, words)) {
            Some(read) => value = read,
            None => return Known::NOT,
        }
    }
    Known { value: narrowed(place, value), is_known: true }
}

/// Returns whether a call at the goal site is within the memory limit; `false` if its values are not known.
#[inline(always)]
pub fn is_within_limit(used: Known, maxmemory: Known, reported: Known, overhead: Known) -> bool {
    if used.is_known && maxmemory.is_known && used.value <= maxmemory.value {
        return true;
    }
    // `mem_used` is 0 then, whatever the difference comes to.
    reported.is_known && overhead.is_known && overhead.value > reported.value
}

/// Returns the address of a place in memory.
#[inline(always)]
fn address(place: &EncodedTerm, words: &SiteWords) -> u64 {
    let base = if place.kind == TermKind::Memory as u8 { words[usize::from(place.register) % REGISTERS] } else { 0 };
    base.wrapping_add(place.displacement as u64)
}

/// Drops the upper half if a term has only 4 bytes.
#[inline(always)]
fn narrowed(term: &EncodedTerm, value: u64) -> u64 {
    if term.width == 4 { value as u32 as u64 } else { value }
}

/// Reads the 8 bytes at an address of the traced process.
#[inline(always)]
pub fn read_user(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address and fails if it cannot be read.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}
