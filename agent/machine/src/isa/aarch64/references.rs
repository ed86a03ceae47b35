//! The addresses that instructions mention, most of them in two steps: one loads the page, another adds what is left.

use evictscope_model::FileAddress;

use super::decode::decode;
use super::tables::{LENGTH, SP, words};
use crate::ir::Instruction;

/// The pages that registers hold, for code that is read from one instruction to the next.
#[derive(Default)]
pub struct Pages([Option<u64>; SP as usize + 1]);

impl Pages {
    /// Returns the address that an instruction mentions or jumps to.
    pub fn mentioned(&mut self, instruction: &Instruction) -> Option<FileAddress> {
        let word = u32::from_le_bytes(*instruction.bytes().first_chunk()?);
        self.mentioned_by(word, instruction.address)
    }

    fn mentioned_by(&mut self, word: u32, at: FileAddress) -> Option<FileAddress> {
        let at = at.get();
        let register = |from: u32| (word >> from & 31) as usize;
        // A signed number that ends below bit `to`.
        let signed = |from: u32, to: u32| i64::from((word << (32 - to)).cast_signed() >> (32 - to + from));
        let ahead = |distance: i64| Some(at.wrapping_add_signed(4 * distance));
        let (to, page) = (register(0), self.0[register(5)]);
        let in_page = |offset: u32| page.map(|page| page.wrapping_add(offset.into()));
        // What the instruction writes no longer holds a page.
        let mut forget = |registers: &[usize]| registers.iter().for_each(|register| self.0[*register] = None);
        let found = if word & 0x1f00_0000 == 0x1000_0000 {
            let distance = signed(5, 24) << 2 | i64::from(word >> 29 & 3);
            forget(&[to]);
            if word >> 31 == 1 {
                self.0[to] = Some((at & !0xfff).wrapping_add_signed(distance << 12)).filter(|_| to != usize::from(SP));
                None
            } else {
                Some(at.wrapping_add_signed(distance))
            }
        } else if word & 0xffc0_0000 == 0x9100_0000 {
            forget(&[to]);
            in_page(word >> 10 & 0xfff)
        } else if word & 0x3b00_0000 == 0x3900_0000 {
            let is_vector = word & 1 << 26 != 0;
            if !is_vector && word & 3 << 22 != 0 {
                forget(&[to]);
            }
            let is_whole_vector = is_vector && word & 1 << 23 != 0;
            in_page((word >> 10 & 0xfff) << if is_whole_vector { 4 } else { word >> 30 })
        } else if word & 0x3b00_0000 == 0x1800_0000 {
            forget(&[to]);
            ahead(signed(5, 24))
        } else if word & 0x7c00_0000 == 0x1400_0000 {
            if word >> 31 == 1 {
                forget(&CALL);
                return None;
            }
            ahead(signed(0, 26))
        } else if word & 0x7e00_0000 == 0x3400_0000 || word & 0xff00_0000 == 0x5400_0000 {
            ahead(signed(5, 24))
        } else if word & 0x7e00_0000 == 0x3600_0000 {
            ahead(signed(5, 19))
        } else {
            let is_load = word & 1 << 22 != 0;
            match word >> 25 & 15 {
                0b1000 | 0b1001 | 0b0101 | 0b1101 => forget(&[to]),
                0b0100 if is_load => forget(&[to, register(10)]),
                0b1100 if is_load || word & 1 << 23 != 0 => forget(&[to]),
                0b1011 if word & 0xfe20_0000 == 0xd620_0000 => forget(&CALL),
                _ => {}
            }
            None
        };
        found.map(FileAddress::new)
    }
}

/// The registers that a call may change.
const CALL: [usize; 19] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18];

/// Shows `look` the address of each instruction that may mention a target, until it returns `false`.
pub fn candidates(
    (address, code): (FileAddress, &[u8]),
    is_target: impl Fn(u32) -> bool,
    mut look: impl FnMut(FileAddress) -> bool,
) {
    let mut pages = Pages::default();
    for (word, at) in words(code, address) {
        let mentioned = pages.mentioned_by(word, at);
        if mentioned.is_some_and(|mentioned| is_target(mentioned.get() as u32)) && !look(at) {
            return;
        }
    }
}

/// Returns what the instruction at `at` mentions, in code that begins at `begin`.
pub fn mentioned_at(code: &[u8], begin: FileAddress, at: FileAddress) -> Option<FileAddress> {
    let mut pages = Pages::default();
    let mentioned = words(code, begin).map(|(word, at)| (at, pages.mentioned_by(word, at)));
    mentioned.into_iter().find(|(other, _)| *other == at)?.1
}

/// Returns whether an instruction is one of those that linkers put between functions: `nop`, or what is none.
pub fn is_padding(bytes: &[u8]) -> bool {
    matches!(bytes, [0x1f, 0x20, 0x03, 0xd5] | [0, 0, 0, 0])
}

/// Decodes instructions one after the other, without those that are not valid.
pub fn decode_all(bytes: &[u8], begin: FileAddress) -> impl Iterator<Item = Instruction> + use<'_> {
    let offsets = (0..bytes.len()).step_by(LENGTH);
    offsets.filter_map(move |offset| decode(bytes.get(offset..)?, begin.wrapping_add(offset as u64)))
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;

    use super::mentioned_at;

    #[test]
    fn an_address_is_made_in_two_steps() {
        let begin = FileAddress::new(0x1000);
        let mentioned = |words: &[u32], at: u64| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            mentioned_at(&bytes, begin, FileAddress::new(at)).map(FileAddress::get)
        };
        // adrp x1, 0x3000; add x0, x1, #0x18; ldr x0, [x1, #8]; mov x1, x2; add x0, x1, #0x18
        let code = [0xd000_0001, 0x9100_6020, 0xf940_0420, 0xaa02_03e1, 0x9100_6020];
        let found = [0x1000, 0x1004, 0x1008, 0x100c, 0x1010].map(|at| mentioned(&code, at));
        assert_eq!(found, [None, Some(0x3018), Some(0x3008), None, None]);
        // b, cbz and tbnz to the instruction after the next, adr and ldr of it, and bl.
        for word in [0x1400_0002, 0x3400_0040, 0x3708_0040, 0x1000_0040, 0x5800_0040] {
            assert_eq!(mentioned(&[word], 0x1000), Some(0x1008), "{word:#x}");
        }
        assert_eq!(mentioned(&[0x9400_0002], 0x1000), None);
    }
}
