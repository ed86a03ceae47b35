//! How much memory the members of sorted sets and the fields of hashes take if they are not packed.

use super::entry::Entry;
use super::layout::Buckets;
use super::value::{SORTED_SUM, Sizes};

/// Bytes of the two pointers of a sorted set.
const SORTED: u64 = 16;
/// Levels of a skip list: a quarter of the nodes at each level reach the next.
const LEVELS: u32 = 32;
/// The flag of a field's name whose value belongs to a module.
const REFERENCE: u8 = 32;

impl Sizes<'_> {
    /// Returns the size of a sorted set.
    pub fn sorted_set(&self, address: u64) -> Option<u64> {
        let [dict, list] = self.memory.words(address)?;
        if self.layout.is_counted {
            return Some(SORTED + self.counted(list, SORTED_SUM)? + self.dict(dict)?);
        }
        if let Some(buckets) = &self.layout.buckets {
            let table = self.table(dict, |entry| self.node(buckets, entry.key))?;
            let head = match buckets.has_members {
                true => 16 + 16 * u64::from(LEVELS),
                false => 32 + self.allocator.rounded(24 + 16 * u64::from(LEVELS)),
            };
            return Some(SORTED + head + table);
        }
        let [_, _, length] = self.memory.words(list)?;
        let node = |levels: u32| self.allocator.rounded(24 + 16 * u64::from(levels)) as f64;
        let nodes = (1..LEVELS).map(|level| 0.75 * 0.25_f64.powi(level as i32 - 1) * node(level));
        let nodes = (nodes.sum::<f64>() * length as f64) as u64;
        let member = |entry: &Entry| Some(self.layout.member_bytes + self.string(entry.key)?);
        let table = self.table(dict, member)?;
        Some(SORTED + 32 + node(LEVELS) as u64 + table + nodes)
    }

    /// Returns the size of a node of the list of a sorted set of Valkey, with its member.
    fn node(&self, buckets: &Buckets, address: u64) -> Option<u64> {
        let head = if buckets.has_members { 16 } else { 24 };
        // The lowest level has the height instead of a span.
        let height = self.memory.u64(address + head + 8)?;
        (1..=LEVELS.into()).contains(&height).then_some(())?;
        let bytes = head + 16 * height;
        if !buckets.has_members {
            return Some(self.allocator.rounded(bytes) + self.string(self.memory.u64(address)?)?);
        }
        let header = u64::from(self.memory.u8(address + bytes)?);
        let member = self.memory.string(address + bytes + 1 + header)?;
        (member.header == header).then_some(())?;
        Some(self.allocator.rounded(bytes + 1 + header + member.length + 1))
    }

    /// Returns the size of a field of a hash, with its value.
    pub fn field(&self, entry: &Entry) -> Option<u64> {
        if let Some(buckets) = &self.layout.buckets {
            return self.pair(buckets, entry.key);
        }
        let name = match self.layout.has_fields {
            true => self.allocator.rounded(self.memory.field(entry.key)?),
            false => self.string(entry.key)?,
        };
        Some(self.entry(entry) + name + self.string(entry.value)?)
    }

    /// Returns the size of a field of a hash of Valkey, which has both name and value.
    fn pair(&self, buckets: &Buckets, address: u64) -> Option<u64> {
        let field = self.memory.string(address)?;
        // The shortest have no flags.
        let flags = match field.header {
            1 => 0,
            _ => self.memory.u8(address.checked_sub(1)?)?,
        };
        // A module's own value is not known.
        (flags & REFERENCE == 0).then_some(())?;
        let [expiring, elsewhere] = buckets.field;
        let expires = if flags & expiring == 0 { 0 } else { 8 };
        let own = field.header + field.length + 1 + expires;
        if flags & elsewhere == 0 {
            let value = self.memory.string(address + field.length + 4)?;
            return Some(own + value.allocated());
        }
        let value = self.memory.u64(address.checked_sub(field.header + 8)?)?;
        Some(self.allocator.rounded(own + 8) + self.string(value)?)
    }
}
