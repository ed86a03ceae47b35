//! What an allocator makes of what a server asks for.

use procfs::process::{MMapPath, MemoryMap, Process};

use super::memory::Memory;

/// Bytes before an allocation of glibc, which hold its size.
const HEADER: u64 = 8;
/// The bits beside the size, and the one that says that the piece in front is in use.
const FLAGS: u64 = 7;
const IN_USE: u64 = 1;
/// No size is larger.
const MOST: u64 = 1 << 40;
/// An option of a jemalloc whose largest sizes are whole pages.
const WHOLE_PAGES: &[u8] = b"disable_large_size_classes";
/// The first sizes of whole pages in the table that each jemalloc has of them.
const PAGES: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12];
/// The most bytes of a mapping that are read. The largest has 0.7 MB.
const LARGEST: usize = 4 << 20;

/// What rounds a server's allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// glibc, or another one that rounds as it does.
    Libc,
    Jemalloc {
        /// The step of its smallest sizes: 8 in the one that comes with Redis, 16 in the shared library.
        quantum: u64,
        /// The step of its largest sizes, of more than 8 times as much, if these are whole pages: since 5.3.1.
        page: Option<u64>,
    },
    /// One that does not tell how much it gave: the server writes before it what it asked for.
    Asked,
}

impl Allocator {
    /// Returns which allocator made these allocations (address, bytes). Before each, glibc writes its size, or 16 more
    /// if it had no smaller piece, and behind it that of the next one, with three bits of its own. If the allocator
    /// does not tell, as musl's, the server writes what it asked for. jemalloc has other contents there.
    pub fn of(memory: &Memory, pid: u32, made: &[(u64, u64)]) -> Self {
        let header = |at: Option<u64>| memory.u64(at?.checked_sub(HEADER)?);
        let is_libc = |(address, bytes): &&(u64, u64)| {
            let least = Self::Libc.rounded(*bytes) + HEADER;
            let size = header(Some(*address)).unwrap_or_default() & !FLAGS;
            let next = header(address.checked_add(size)).unwrap_or_default();
            let is_next = next & IN_USE != 0 && (next & !FLAGS).is_multiple_of(16);
            [least, least + 16].contains(&size) && is_next && next < MOST
        };
        let is_asked = |(address, bytes): &&(u64, u64)| header(Some(*address)) == Some(*bytes);
        if 2 * made.iter().filter(is_libc).count() >= made.len() {
            return Self::Libc;
        }
        if 2 * made.iter().filter(is_asked).count() >= made.len() {
            return Self::Asked;
        }
        let shared = shared_jemalloc(memory, pid).unwrap_or_default();
        Self::Jemalloc { quantum: if shared.is_empty() { 8 } else { 16 }, page: page_of(&shared) }
    }

    /// Returns whether an allocation may have this many `bytes`, a power of two of 4 KiB or more: its size lies before
    /// it, or jemalloc lays it at a multiple of them, of whatever size jemalloc's pages are.
    pub fn may_have(self, bytes: u64, memory: &Memory, address: u64) -> Option<bool> {
        Some(match self {
            Self::Libc | Self::Asked => memory.u64(address.checked_sub(HEADER)?)? >= bytes,
            Self::Jemalloc { .. } => address.is_multiple_of(bytes),
        })
    }

    /// Returns the `malloc_usable_size` of an allocation of `bytes`.
    pub fn rounded(self, bytes: u64) -> u64 {
        match self {
            Self::Libc => (bytes + HEADER).next_multiple_of(16).max(32) - HEADER,
            Self::Asked => bytes + HEADER,
            Self::Jemalloc { .. } if bytes <= 8 => 8,
            Self::Jemalloc { page: Some(page), .. } if bytes > 8 * page => bytes.next_multiple_of(page),
            // Four sizes between two powers of two.
            Self::Jemalloc { quantum, .. } => bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(quantum)),
        }
    }
}

/// Returns what a process has in each mapping of the shared jemalloc, and of what that keeps behind its file; nothing
/// of one that cannot be read.
fn shared_jemalloc(memory: &Memory, pid: u32) -> Option<Vec<Vec<u8>>> {
    let maps = Process::new(pid.cast_signed()).and_then(|process| process.maps()).ok()?;
    let is_jemalloc =
        |path: &MMapPath| matches!(path, MMapPath::Path(path) if path.to_string_lossy().contains("libjemalloc"));
    let mut end = None;
    let its_own = maps.iter().filter(|map| {
        let is_it = is_jemalloc(&map.pathname) || map.inode == 0 && end == Some(map.address.0);
        end = is_it.then_some(map.address.1);
        is_it
    });
    let content = |map: &MemoryMap| {
        let mut bytes = vec![0; usize::try_from(map.address.1 - map.address.0).ok()?.min(LARGEST)];
        memory.fill(map.address.0, &mut bytes)?;
        Some(bytes)
    };
    Some(its_own.map(|map| content(map).unwrap_or_default()).collect())
}

/// Returns the page of a jemalloc whose largest sizes are multiples of it.
fn page_of(mappings: &[Vec<u8>]) -> Option<u64> {
    mappings.iter().find(|bytes| bytes.windows(WHOLE_PAGES.len()).any(|text| text == WHOLE_PAGES))?;
    let is_table = |words: &&[[u8; 8]]| {
        let page = u64::from_ne_bytes(words[0]);
        [4 << 10, 16 << 10, 64 << 10].contains(&page)
            && (words.iter().zip(PAGES)).all(|(word, pages)| u64::from_ne_bytes(*word) == pages * page)
    };
    let mut tables = mappings.iter().filter_map(|bytes| bytes.as_chunks().0.windows(PAGES.len()).find(is_table));
    tables.next().map(|table| u64::from_ne_bytes(table[0]))
}

#[cfg(test)]
mod tests {
    use super::{Allocator, Memory, PAGES, WHOLE_PAGES, page_of};

    #[test]
    fn sizes_are_rounded_as_the_allocators_do() {
        let jemalloc = |quantum| move |bytes| Allocator::Jemalloc { quantum, page: None }.rounded(bytes);
        let asked = [1, 24, 33, 129, 200, 257, 4_097, 20_481];
        assert_eq!(asked.map(jemalloc(8)), [8, 24, 40, 160, 224, 320, 5_120, 24_576]);
        assert_eq!(asked.map(jemalloc(16)), [8, 32, 48, 160, 224, 320, 5_120, 24_576]);
        let paged = |page| move |bytes| Allocator::Jemalloc { quantum: 16, page: Some(page) }.rounded(bytes);
        assert_eq!([4_097, 32_768, 32_769].map(paged(4_096)), [5_120, 32_768, 36_864]);
        assert_eq!([36_865, 524_288, 524_632].map(paged(65_536)), [40_960, 524_288, 589_824]);
        assert_eq!(asked.map(|bytes| Allocator::Libc.rounded(bytes)), [24, 24, 40, 136, 200, 264, 4_104, 20_488]);
    }

    #[test]
    fn jemalloc_tells_its_page_if_sizes_depend_on_it() {
        let table = |page: u64| [&[0; 40][..], PAGES.map(|pages| (pages * page).to_ne_bytes()).as_flattened()].concat();
        let text = [b"\0opt.", WHOLE_PAGES].concat();
        assert_eq!(page_of(&[text.clone(), Vec::new(), table(65_536)]), Some(65_536));
        assert_eq!(page_of(&[text, table(0)]), None);
        assert_eq!(page_of(&[table(65_536)]), None);
    }

    #[test]
    fn what_the_server_writes_before_its_allocations_is_what_it_asked_for() -> anyhow::Result<()> {
        let memory = Memory::of_this_process()?;
        let of = |word: u64| {
            let words = [word, 0, 0, 0];
            Allocator::of(&memory, std::process::id(), &[(&raw const words[1] as u64, 24)])
        };
        assert_eq!([24, 25].map(of), [Allocator::Asked, Allocator::Jemalloc { quantum: 8, page: None }]);
        assert_eq!(Allocator::Asked.rounded(24), 32);
        Ok(())
    }
}
