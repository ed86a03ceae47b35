//! The globals that a run finds.

use crate::elf::address::FileAddress;
use crate::flow::bits::low_bits;

/// A load of a global variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Load {
    /// Virtual address, as in the file.
    pub address: FileAddress,
    /// Bytes: 1, 2, 4 or 8; a vector's halves are loads of their own.
    pub width: u64,
}

/// The globals as one run sees them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Globals {
    /// Chooses the noise.
    pub seed: u64,
    /// One global that is not noise, and its value.
    pub chosen: Option<(Load, u64)>,
}

impl Globals {
    /// Returns what the 8 bytes at `address` hold, which must be a multiple of 8.
    pub fn value(&self, address: FileAddress) -> u64 {
        let noise = noise(address.get() ^ self.seed);
        let (load, value) = match self.chosen {
            Some((load, value)) if load.address.get() & !7 == address.get() => (load, value),
            _ => return noise,
        };
        let shift = 8 * (load.address.get() & 7) as u32;
        let mask = low_bits(u64::MAX, 8 * load.width).wrapping_shl(shift);
        (noise & !mask) | (value.wrapping_shl(shift) & mask)
    }
}

/// Returns a number without a pattern (the finaliser of SplitMix64).
pub fn noise(of: u64) -> u64 {
    let mut mixed = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
