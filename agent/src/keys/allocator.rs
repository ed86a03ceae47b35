//! How much memory an allocation takes.

use procfs::process::{MMapPath, Process};

use super::memory::Memory;

/// Bytes before an allocation of glibc, which hold its size.
const HEADER: u64 = 8;
const PAGE: u64 = 4_096;
/// The bits beside the size, and the one that says that the piece in front is in use.
const FLAGS: u64 = 7;
const IN_USE: u64 = 1;
/// No size is larger.
const MOST: u64 = 1 << 40;

/// What rounds a server's allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// glibc, or another one that rounds as it does.
    Libc,
    /// jemalloc, with the step of its smallest sizes.
    Jemalloc {
        /// 8 in the one that comes with Redis, 16 in the shared library.
        quantum: u64,
    },
}

impl Allocator {
    /// Returns which allocator made these allocations (address, bytes). Before each, glibc writes its size, or 16 more
    /// if it had no smaller piece, and behind it that of the next one, with three bits of its own. jemalloc has other
    /// contents there.
    pub fn of(memory: &Memory, pid: u32, made: &[(u64, u64)]) -> Self {
        let header = |at: Option<u64>| memory.u64(at?.checked_sub(HEADER)?);
        let is_libc = |(address, bytes): &&(u64, u64)| {
            let least = Self::Libc.rounded(*bytes) + HEADER;
            let size = header(Some(*address)).unwrap_or_default() & !FLAGS;
            let next = header(address.checked_add(size)).unwrap_or_default();
            let is_next = next & IN_USE != 0 && (next & !FLAGS).is_multiple_of(16);
            [least, least + 16].contains(&size) && is_next && next < MOST
        };
        if 2 * made.iter().filter(is_libc).count() >= made.len() {
            return Self::Libc;
        }
        let maps = Process::new(pid.cast_signed()).and_then(|process| process.maps());
        let is_shared = maps.is_ok_and(|maps| {
            maps.iter().any(|map| match &map.pathname {
                MMapPath::Path(path) => path.to_string_lossy().contains("libjemalloc"),
                _ => false,
            })
        });
        let quantum = if is_shared { 16 } else { 8 };
        Self::Jemalloc { quantum }
    }

    /// Returns whether an allocation may be of a page or more: glibc has written its size, and jemalloc starts it at a
    /// page boundary.
    pub fn may_be_page(self, memory: &Memory, address: u64) -> Option<bool> {
        Some(match self {
            Self::Libc => memory.u64(address.checked_sub(HEADER)?)? > PAGE,
            Self::Jemalloc { .. } => address.is_multiple_of(PAGE),
        })
    }

    /// Returns the `malloc_usable_size` of an allocation of `bytes`.
    pub fn rounded(self, bytes: u64) -> u64 {
        match self {
            Self::Libc => (bytes + HEADER).next_multiple_of(16).max(32) - HEADER,
            Self::Jemalloc { .. } if bytes <= 8 => 8,
            // Four sizes between two powers of two.
            Self::Jemalloc { quantum } => {
                let step = (bytes.next_power_of_two() / 8).max(quantum);
                bytes.next_multiple_of(step)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Allocator;

    #[test]
    fn sizes_are_rounded_as_the_allocators_do() {
        let jemalloc = |quantum| move |bytes| Allocator::Jemalloc { quantum }.rounded(bytes);
        let asked = [1, 24, 33, 129, 200, 257, 4_097, 20_481];
        assert_eq!(asked.map(jemalloc(8)), [8, 24, 40, 160, 224, 320, 5_120, 24_576]);
        assert_eq!(asked.map(jemalloc(16)), [8, 32, 48, 160, 224, 320, 5_120, 24_576]);
        let libc = asked.map(|bytes| Allocator::Libc.rounded(bytes));
        assert_eq!(libc, [24, 24, 40, 136, 200, 264, 4_104, 20_488]);
    }
}
