//! What a server's memory is made of, as the server itself accounts it (`getMemoryOverheadData()`).
//!
//! The parts are exact, or missing; [`MemoryPart::Rest`] is what remains of `used_memory` without them. So it has keys
//! and their values, and also what nobody accounts: a part that was not found, functions, the tracking table, values
//! that are freed lazily or that replies still point to.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Deserializer, Serialize, Serializer};

/// What the tracking table takes for each key, and for each client that may have it, bytes. Tried with 100,000 keys and
/// one to three clients of Redis 6.2 to 8.2 and Valkey 9.1: 0.8 to 1.3 times what was then seen.
const OF_TRACKED: [u64; 2] = [50, 60];

/// Declares the parts, each with its name in metrics and in records, and its name for people.
macro_rules! memory_parts {
    ($($(#[$doc:meta])* $part:ident $name:literal $title:literal)*) => {
        /// A share of `used_memory` with an owner.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum MemoryPart {
            $($(#[$doc])* $part,)*
        }

        impl MemoryPart {
            /// All of them; the rest is the last.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$part),*];

            /// Returns its name in metrics and in records.
            pub const fn name(self) -> &'static str {
                [$($name),*][self as usize]
            }

            /// Returns its name for people.
            pub const fn title(self) -> &'static str {
                [$($title),*][self as usize]
            }
        }
    };
}

memory_parts! {
    /// Memory that was used when the server had started.
    Startup "startup" "server as it started"
    /// Buffers of normal clients.
    ClientsNormal "clients_normal" "client buffers"
    /// Buffers of subscribers.
    ClientsPubsub "clients_pubsub" "subscribers' buffers"
    /// Buffers of the link to the primary.
    ClientsPrimary "clients_primary" "link to the primary"
    /// Output buffers of replicas, beyond what the backlog has.
    Replicas "replicas" "replicas' buffers"
    /// The replication backlog.
    Backlog "backlog" "replication backlog"
    /// What waits to be written to the AOF.
    AofBuffer "aof_buffer" "AOF buffer"
    /// Links to other members of the cluster.
    ClusterLinks "cluster_links" "cluster links"
    /// The scripts of EVAL.
    Scripts "scripts" "scripts"
    /// The places of the hash tables of keys and of their times to live.
    Tables "tables" "hash tables of keys"
    /// What remains.
    Rest "rest" "keys and the rest"
}

/// The parts of a server's memory at one moment, and counts of what takes memory that is in no part but the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct MemoryParts {
    /// `used_memory`, bytes.
    pub used: u64,
    parts: [Option<u64>; MemoryPart::ALL.len()],
    /// Keys in all databases.
    pub keys: Option<u64>,
    /// Those of them that have a time to live.
    pub expiring_keys: Option<u64>,
    /// Keys in the tracking table.
    pub tracked_keys: Option<u64>,
    /// For how many clients these are there, in all.
    pub tracked_items: Option<u64>,
    /// Values that are to be freed lazily.
    pub being_freed: Option<u64>,
}

impl MemoryParts {
    /// Returns these parts of `used` bytes, and the rest. That is not known if they are more than all: they changed
    /// while they were read.
    pub fn new(used: u64, parts: impl IntoIterator<Item = (MemoryPart, Option<u64>)>) -> Self {
        let mut memory = Self { used, ..Self::default() };
        for (part, bytes) in parts {
            memory.parts[part as usize] = bytes;
        }
        let rest = memory.parts.iter().flatten().try_fold(used, |rest, bytes| rest.checked_sub(*bytes));
        memory.parts[MemoryPart::Rest as usize] = rest;
        memory
    }

    #[cfg(test)]
    pub(crate) fn of_keys(keys: u64) -> Self {
        Self { keys: Some(keys), ..Self::default() }
    }

    /// Returns a part, bytes; `None` if it is not known.
    pub fn get(&self, part: MemoryPart) -> Option<u64> {
        self.parts[part as usize]
    }

    /// Returns by estimate what the tracking table takes, which is in the rest, bytes.
    pub fn tracking_table(&self) -> Option<u64> {
        let [keys, clients] = [self.tracked_keys?, self.tracked_items?].map(|count| count.min(u64::from(u32::MAX)));
        Some(keys * OF_TRACKED[0] + clients * OF_TRACKED[1])
    }

    /// Returns the highest of each part in both.
    #[must_use]
    pub fn highest(mut self, mut other: Self) -> Self {
        let used = self.used.max(other.used);
        self.kept().zip(other.kept()).for_each(|((_, value), (_, other))| *value = (*value).max(*other));
        Self { used, ..self }
    }

    /// Returns all values that are kept, by the names that records have for them.
    fn kept(&mut self) -> impl Iterator<Item = (&'static str, &mut Option<u64>)> {
        let names = MemoryPart::ALL.into_iter().map(MemoryPart::name);
        let counts = [
            ("keys", &mut self.keys),
            ("expiring_keys", &mut self.expiring_keys),
            ("tracked_keys", &mut self.tracked_keys),
            ("tracked_items", &mut self.tracked_items),
            ("being_freed", &mut self.being_freed),
        ];
        names.zip(&mut self.parts).chain(counts)
    }
}

impl Serialize for MemoryParts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut parts = *self;
        let known = parts.kept().filter_map(|(name, value)| Some((name, (*value)?)));
        to.collect_map(std::iter::once(("used", self.used)).chain(known))
    }
}

impl<'de> serde::Deserialize<'de> for MemoryParts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let values: BTreeMap<String, u64> = serde::Deserialize::deserialize(from)?;
        let mut parts = Self { used: values.get("used").copied().unwrap_or_default(), ..Self::default() };
        parts.kept().for_each(|(name, value)| *value = values.get(name).copied());
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryPart, MemoryParts};

    #[test]
    fn the_rest_is_what_the_known_parts_leave() {
        let known = [(MemoryPart::Startup, Some(30)), (MemoryPart::Tables, Some(60)), (MemoryPart::Scripts, None)];
        let parts = MemoryParts { keys: Some(3), ..MemoryParts::new(100, known) };
        assert_eq!(parts.get(MemoryPart::Rest), Some(10));
        assert_eq!((parts.get(MemoryPart::Tables), parts.get(MemoryPart::Scripts)), (Some(60), None));
        let json = serde_json::to_string(&parts).unwrap_or_default();
        assert_eq!(json, r#"{"used":100,"startup":30,"tables":60,"rest":10,"keys":3}"#);
        assert_eq!(serde_json::from_str::<MemoryParts>(&json).ok(), Some(parts));
        let other = MemoryParts::new(90, [(MemoryPart::Startup, Some(91))]);
        assert_eq!(other.get(MemoryPart::Rest), None);
        let highest = [MemoryPart::Startup, MemoryPart::Tables].map(|part| parts.highest(other).get(part));
        assert_eq!(highest, [Some(91), Some(60)]);
    }
}
