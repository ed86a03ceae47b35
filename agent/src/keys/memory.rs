//! Values in the memory of a process. `None`: nothing is mapped there, or the walk has used up what it may take.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_host::{MemoryError, Words};
use evictscope_model::ProcessAddress;

/// Each walk through a server's memory. Memory is not trusted: some can be made in which a walk would not end, or not
/// fit. So one takes its steps and its time from a limit, and everything that it reads from then on is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// What each reading follows besides members: errors, and what is not counted.
    Reading,
    /// Finds the databases, and reads their tables once.
    Tables,
    /// The same with some of the keys that expire.
    Expired,
    /// Finds out which allocator made some entries.
    Allocator(Duration),
    /// Draws keys for so long.
    Draw(Duration),
}

impl Walk {
    /// Returns the most steps, each a read of at most 64 bytes, and the longest time.
    ///
    /// Reading the tables of 16,384 slots in 16 databases takes a million steps.
    pub const fn limit(self) -> (u64, Duration) {
        match self {
            Self::Reading => (1 << 16, Duration::from_millis(100)),
            Self::Tables | Self::Expired => (1 << 22, Duration::from_secs(2)),
            Self::Allocator(time) => (1 << 22, time),
            Self::Draw(time) => (1 << 32, time),
        }
    }
}

/// The memory of a process, for one walk.
pub struct Memory {
    words: Arc<Words>,
    steps: Cell<u64>,
    until: Instant,
}

impl Memory {
    pub fn open(pid: u32, walk: Walk) -> Result<Self, MemoryError> {
        Ok(Self::of(&Arc::new(Words::open(pid)?), walk))
    }

    /// Returns it for a walk that begins now.
    pub fn of(words: &Arc<Words>, walk: Walk) -> Self {
        let (steps, time) = walk.limit();
        Self { words: words.clone(), steps: Cell::new(steps), until: Instant::now() + time }
    }

    /// Returns the same memory for another walk, which takes nothing from this one.
    pub fn another(&self, walk: Walk) -> Self {
        Self::of(&self.words, walk)
    }

    /// Returns whether the walk has used up what it may take.
    pub fn is_spent(&self) -> bool {
        self.steps.get() == 0 || Instant::now() >= self.until
    }

    pub fn fill(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let steps = 1 + bytes.len() as u64 / 64;
        self.steps.set(self.steps.get().saturating_sub(steps));
        (!self.is_spent() && self.words.fill(ProcessAddress::new(address), bytes)).then_some(())
    }

    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(address, &mut bytes)?;
        Some(bytes)
    }

    pub fn u8(&self, address: u64) -> Option<u8> {
        self.bytes(address).map(u8::from_ne_bytes)
    }

    pub fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_ne_bytes)
    }

    pub fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_ne_bytes)
    }

    pub fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.fill(address, bytes.as_flattened_mut())?;
        Some(bytes.map(u64::from_ne_bytes))
    }

    pub fn string(&self, address: u64) -> Option<StringHeader> {
        let flags = self.u8(address.checked_sub(1)?)?;
        let kind = u32::from(flags & 7);
        if kind == 0 {
            let length = u64::from(flags >> 3);
            return Some(StringHeader { header: 1, length, space: length });
        }
        // Its length and what is allocated for it, in 1, 2, 4 or 8 bytes each.
        let width = 1_usize.checked_shl(kind - 1).filter(|width| *width <= 8)?;
        let header = 2 * width as u64 + 1;
        let mut bytes = [0; 16];
        self.fill(address.checked_sub(header)?, &mut bytes[..2 * width])?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let (length, space) = (number(&bytes[..width]), number(&bytes[width..2 * width]));
        (length <= space && space < 1 << 40).then_some(StringHeader { header, length, space })
    }

    /// Returns what was asked of the allocator for the name of a field of a hash, `mstr`.
    pub fn field(&self, address: u64) -> Option<u64> {
        let info = self.u8(address.checked_sub(1)?)?;
        let (header, length) = match info & 3 {
            0 => (1, u64::from(info >> 3)),
            1 => (3, self.u8(address.checked_sub(2)?)?.into()),
            2 => (3, u16::from_ne_bytes(self.bytes(address.checked_sub(3)?)?).into()),
            _ => (9, self.u64(address.checked_sub(9)?)?),
        };
        // Its expiry time lies in front.
        let flags = match info & 4 {
            0 => 0,
            _ => 2 + 16 * u64::from(u16::from_ne_bytes(self.bytes(address.checked_sub(header + 2)?)?) & 1),
        };
        (length < 1 << 40).then_some(flags + header + length + 1)
    }
}

pub struct StringHeader {
    /// Its own bytes; those of the string, and those that it has space for.
    pub header: u64,
    pub length: u64,
    pub space: u64,
}

impl StringHeader {
    /// Returns what was asked of the allocator for it.
    pub fn allocated(&self) -> u64 {
        self.header + self.space + 1
    }
}

#[cfg(test)]
impl Memory {
    pub fn of_this_process() -> Result<Self, MemoryError> {
        Self::open(std::process::id(), Walk::Tables)
    }
}
