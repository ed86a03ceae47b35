//! The head of a value: its type, its encoding, when it was used, and what lies with it.

use super::layout::KeyspaceLayout;
use super::memory::Memory;

/// Bytes of a head, and of the pointer to the value at its end.
pub const HEAD: u64 = 16;
const POINTER: u64 = 8;
/// Bytes before the text of a value that lies with its head.
const HEADER: u64 = 3;
/// The bits of the reference count if values are counted.
const REFERENCES: u32 = (1 << 23) - 1;

/// The types by their numbers.
const TYPES: [&str; 8] = ["string", "list", "set", "zset", "hash", "module", "stream", "array"];
/// The encodings by their numbers. Empty ones are no longer used.
const ENCODINGS: [&str; 16] = [
    "raw",
    "int",
    "hashtable",
    "",
    "",
    "ziplist",
    "intset",
    "skiplist",
    "embstr",
    "quicklist",
    "stream",
    "listpack",
    "listpackex",
    "sliced-array",
    "template-listpack",
    "template-array",
];

/// The head of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    kind: u8,
    encoding: u8,
    /// When it was used, in seconds without their upper bits; or its counter, in the lower 8 bits.
    pub lru: u32,
    /// Its value, or where that is.
    pub content: u64,
    /// Where its key is, if the key lies with it; otherwise 0.
    pub key: u64,
    /// When it expires, in milliseconds, if it does and that lies with it.
    pub expires: Option<u64>,
    /// Bytes that lie before it.
    pub before: u64,
    /// Bytes of the head with what lies behind it, but without the value.
    pub bytes: u64,
    /// Whether it is a small integer that the server made at its start, and all keys with this value share.
    pub is_shared: bool,
}

impl Object {
    /// Reads the head of a value. Returns `None` if there is none.
    pub fn read(memory: &Memory, layout: &KeyspaceLayout, address: u64) -> Option<Self> {
        let [head, content] = memory.words(address)?;
        let (low, mut flags) = (head as u32, (head >> 32) as u32);
        let mut object = Self {
            kind: (head & 15) as u8,
            encoding: (head >> 4 & 15) as u8,
            lru: low >> 8,
            content,
            key: 0,
            expires: None,
            before: 0,
            bytes: HEAD,
            is_shared: false,
        };
        if layout.is_counted {
            // The time comes last, behind a bit for each word before the head: the nearest says when it expires.
            object.lru = flags >> 8;
            object.before = 8 * u64::from((flags as u8).count_ones());
            flags = (low >> 8 & REFERENCES) << 2 | low >> 31 << 1 | flags & 1;
        }
        let has = |flag| flags & flag != 0;
        if has(layout.object.value) {
            object.bytes -= POINTER;
        }
        if has(layout.object.expires) {
            let at = if layout.is_counted { address.checked_sub(8)? } else { address + object.bytes };
            let expires = memory.u64(at)?;
            object.expires = (expires.cast_signed() != -1).then_some(expires);
            object.bytes += if layout.is_counted { 0 } else { 8 };
        }
        if has(layout.object.key) {
            let header = u64::from(memory.u8(address + object.bytes)?);
            object.key = address + object.bytes + 1 + header;
            let text = memory.string(object.key)?;
            (text.header == header).then_some(())?;
            object.bytes += 1 + header + text.length + 1;
        }
        let behind = address + object.bytes + HEADER;
        if has(layout.object.value) {
            object.content = behind;
        }
        let references = flags >> layout.object.bits;
        // `OBJ_SHARED_REFCOUNT` is the largest number, which no counting reaches.
        object.is_shared = references >= i32::MAX.cast_unsigned() >> layout.object.bits;
        let is_sound = references.cast_signed() > 0
            && object.names().is_some()
            && (layout.object.key == 0) == (object.key == 0)
            && (!object.is_inner() || object.content == behind);
        is_sound.then_some(object)
    }

    /// Returns whether its value lies with it.
    pub fn is_inner(&self) -> bool {
        self.names() == Some(("string", "embstr"))
    }

    /// Returns what was asked of the allocator for it.
    pub fn allocated(&self, memory: &Memory) -> Option<u64> {
        let value = if self.is_inner() { memory.string(self.content)?.allocated() } else { 0 };
        Some(self.before + self.bytes + value)
    }

    /// Returns whether this is still the same value: it may have been used.
    pub fn is(&self, other: &Self) -> bool {
        Self { lru: other.lru, ..*self } == *other
    }

    /// Returns the names of its type and encoding, if the two go together.
    pub fn names(&self) -> Option<(&'static str, &'static str)> {
        let kind = *TYPES.get(usize::from(self.kind))?;
        let encoding = *ENCODINGS.get(usize::from(self.encoding))?;
        let encodings: &[&str] = match kind {
            "string" => &["raw", "int", "embstr"],
            "list" => &["quicklist", "ziplist", "listpack"],
            "set" => &["hashtable", "intset", "listpack"],
            "zset" => &["skiplist", "ziplist", "listpack"],
            "hash" => &["hashtable", "ziplist", "listpack", "listpackex", "template-listpack", "template-array"],
            "stream" => &["stream"],
            "array" => &["sliced-array"],
            _ => &ENCODINGS,
        };
        encodings.contains(&encoding).then_some((kind, encoding))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::{Memory, Object};
    use crate::keys::layout::{REDIS_7_0, VALKEY_8_1, VALKEY_9_1};

    /// Makes a head with these flags behind the time, and `behind` after its first 8 bytes.
    fn head(flags: u32, behind: &[&[u8]]) -> Vec<u8> {
        let first = [0x80, 1, 0, 0];
        [&first[..], &flags.to_ne_bytes(), &behind.concat()].concat()
    }

    #[test]
    fn what_lies_with_a_value_is_found_by_its_flags() -> anyhow::Result<()> {
        let memory = Memory::of_this_process()?;
        let expires = 7_000_u64.to_ne_bytes();
        let [key, text]: [&[u8]; 2] = [b"\x01\x18key\0", b"\x03\x03\x01abc\0\0\0\0\0\0\0\0\0"];
        let bytes = head(1 << 3 | 7, &[&expires, key, text]);
        let at = bytes.as_ptr() as u64;
        let object = Object::read(&memory, &VALKEY_9_1, at).context("no object")?;
        assert_eq!(object.names(), Some(("string", "embstr")));
        assert_eq!((object.key, object.expires), (at + 18, Some(7_000)));
        assert_eq!((object.content, object.bytes), (at + 25, 22));
        assert_eq!((object.lru, object.allocated(&memory)), (1, Some(29)));

        // Its value is where older versions have the pointer to it.
        assert_eq!(Object::read(&memory, &VALKEY_8_1, at), None);
        // In Redis 7.0, no key lies with a value; in Valkey 9.1, one must.
        assert_eq!(Object::read(&memory, &REDIS_7_0, at), None);
        assert_eq!(Object::read(&memory, &VALKEY_9_1, head(1 << 3 | 4, &[text]).as_ptr() as u64), None);
        // Its reference count is 0.
        assert_eq!(Object::read(&memory, &VALKEY_9_1, head(7, &[&expires, key, text]).as_ptr() as u64), None);
        Ok(())
    }
}
