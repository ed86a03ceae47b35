//! Random numbers and states, the same in each run.

use super::runner::{FLAGS, MEMORY, State, WORDS};
use super::x86_64;

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number of a kind that instructions may treat in a way of its own.
    fn number(&mut self) -> u64 {
        let any = self.next();
        match self.below(8) {
            0 => any % 5,
            1 => (any % 5).wrapping_neg(),
            // Near the greatest that is less than a half, a quarter or an eighth of a register can hold, signed or not.
            2 => (1_u64 << [7, 8, 15, 16, 31, 32, 63][self.below(7) as usize]).wrapping_add(any % 3).wrapping_sub(1),
            3 => any >> (any % 64),
            4 => f64::from(any as u32 >> (any >> 59)).to_bits(),
            _ => any,
        }
    }

    /// Returns a state with this memory. Some of its numbers are the same, or are in memory, too.
    pub fn state(&mut self, memory: &[u64]) -> State {
        let few = [self.number(), self.number(), memory[self.below(memory.len() as u64) as usize]];
        let mut number = || if self.below(3) == 0 { few[self.below(3) as usize] } else { self.number() };
        let mut state: State = (0..MEMORY).map(|_| number()).collect();
        state[FLAGS] = self.next() & x86_64::ALL_FLAGS;
        state.extend(memory);
        state
    }

    pub fn memory(&mut self) -> Vec<u64> {
        (MEMORY..WORDS).map(|_| self.number()).collect()
    }
}
