//! Values in the memory of a process. `None`: nothing is mapped there.

use evictscope_host::{MemoryError, Words};
use evictscope_plan::ProcessAddress;

/// The memory of a process.
pub struct Memory(Words);

impl Memory {
    /// Opens it.
    pub fn open(pid: u32) -> Result<Self, MemoryError> {
        Words::open(pid).map(Self)
    }

    /// Fills the bytes with what is at an address.
    pub fn fill(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let is_read = self.0.fill(ProcessAddress::new(address), bytes);
        is_read.then_some(())
    }

    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(address, &mut bytes)?;
        Some(bytes)
    }

    /// Returns the number of 8 bytes at an address.
    pub fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_ne_bytes)
    }

    /// Returns the number of 4 bytes at an address.
    pub fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_ne_bytes)
    }

    /// Returns as many numbers of 8 bytes.
    pub fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.fill(address, bytes.as_flattened_mut())?;
        Some(bytes.map(u64::from_ne_bytes))
    }

    /// Returns the header of a string of Redis.
    pub fn string(&self, address: u64) -> Option<Text> {
        let [flags] = self.bytes(address.checked_sub(1)?)?;
        let kind = u32::from(flags & 7);
        if kind == 0 {
            let length = u64::from(flags >> 3);
            return Some(Text {
                length,
                allocated: 1 + length + 1,
            });
        }
        // Its length and what is allocated for it, in 1, 2, 4 or 8 bytes each.
        let width = 1_usize.checked_shl(kind - 1).filter(|width| *width <= 8)?;
        let header = 2 * width as u64 + 1;
        let mut bytes = [0; 16];
        self.fill(address.checked_sub(header)?, &mut bytes[..2 * width])?;
        let number = |bytes: &[u8]| {
            let digits = bytes.iter().rev();
            digits.fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (length, space) = (number(&bytes[..width]), number(&bytes[width..2 * width]));
        let is_sound = length <= space && space < 1 << 40;
        is_sound.then_some(Text {
            length,
            allocated: header + space + 1,
        })
    }
}

/// The header of a string of Redis.
pub struct Text {
    /// Its length in bytes.
    pub length: u64,
    /// What was asked of the allocator for it.
    pub allocated: u64,
}
