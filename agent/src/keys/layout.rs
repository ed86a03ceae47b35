//! How versions lay out their databases, hash tables, and values.

use anyhow::Context as _;
use evictscope_plan::Identity;

/// How a version lays out what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceLayout {
    pub database_bytes: u64,
    /// The word of a database at which its tables of things other than keys begin, and the word behind them, its
    /// number.
    pub others_at: [usize; 2],
    /// Where the pointer to its tables is in a `kvstore`, if a database has these instead of tables.
    pub store: Option<u64>,
    /// Where the exponents of a table's sizes are in its last word, since Redis 7.0.
    pub exponents: Option<usize>,
    /// What the lowest bits of a pointer to an entry say: 000, 010, 100, 110, and any odd number.
    pub entries: [EntryForm; 5],
    /// Whether each form of an entry counts as what it takes.
    pub has_forms: bool,
    /// Whether the fields of hashes are `mstr`.
    pub has_fields: bool,
    /// Bytes before the pointer to a listpack whose fields expire, in a `listpackEx`.
    pub listpack_at: u64,
    /// Whether streams reserve space in advance.
    pub is_ahead: bool,
    /// Of Valkey since 8.1, where tables have buckets.
    pub buckets: Option<Buckets>,
    /// Whether databases are made when they are first used, and pointed to.
    pub has_pointers: bool,
    /// What lies with an object besides its value.
    pub object: ObjectFlags,
    /// Whether the head of an object counts as what it takes with what is in it.
    pub is_whole: bool,
    /// How many bytes a member of a sorted set counts for in the table.
    pub member_bytes: u64,
    /// Whether values have the sum of what they take, and more may lie before an object than its expiry time.
    pub is_counted: bool,
    /// Whether an object counts as what was asked for, and a table's entry without a value as such.
    pub is_as_asked: bool,
    /// Whether a string counts as what was asked for.
    pub has_bare_strings: bool,
}

/// How Valkey lays out values with buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Bytes of the head of a table.
    pub head: u64,
    /// The bits in the flags of a field's name that say that it expires, and that its value is elsewhere.
    pub field: [u8; 2],
    /// Whether the members of a sorted set are in the nodes of its list.
    pub has_members: bool,
    /// Bytes of a stream before the pointer to its tree.
    pub stream: u64,
}

/// The bits behind the time in an object's head, which say whether its expiry time, its key, and its value (instead of
/// a pointer) lie with it; and how many bits there are. 0 means that there is no such bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFlags {
    pub expires: u32,
    pub key: u32,
    pub value: u32,
    /// Bits before the reference count.
    pub bits: u32,
}

/// What an entry of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryForm {
    None,
    /// Its key, its value, and the next.
    Whole,
    /// Its key and the next.
    Valueless,
    /// The next and its key.
    Chained,
    /// Its value, the next, and its key itself.
    Embedding,
    /// The pointer is to the key.
    Key,
}

static REDIS_6_0: KeyspaceLayout = KeyspaceLayout {
    database_bytes: 72,
    others_at: [2, 5],
    store: None,
    exponents: None,
    entries: [EntryForm::Whole, EntryForm::None, EntryForm::None, EntryForm::None, EntryForm::None],
    has_forms: false,
    has_fields: false,
    listpack_at: 24,
    is_ahead: false,
    buckets: None,
    has_pointers: false,
    object: ObjectFlags { expires: 0, key: 0, value: 0, bits: 0 },
    is_whole: false,
    member_bytes: 24,
    is_counted: false,
    is_as_asked: false,
    has_bare_strings: true,
};
static REDIS_6_0_9: KeyspaceLayout = KeyspaceLayout { has_bare_strings: false, ..REDIS_6_0 };
static REDIS_6_2: KeyspaceLayout = KeyspaceLayout { is_ahead: true, ..REDIS_6_0_9 };
pub static REDIS_7_0: KeyspaceLayout = KeyspaceLayout { database_bytes: 80, exponents: Some(2), ..REDIS_6_2 };
/// Valkey 7.2 is the same.
static REDIS_7_2: KeyspaceLayout = KeyspaceLayout {
    database_bytes: 88,
    others_at: [2, 6],
    entries: [EntryForm::Whole, EntryForm::Valueless, EntryForm::None, EntryForm::None, EntryForm::Key],
    ..REDIS_7_0
};
static REDIS_7_4: KeyspaceLayout =
    KeyspaceLayout { others_at: [3, 7], store: Some(128), has_fields: true, ..REDIS_7_2 };
pub static REDIS_8_0: KeyspaceLayout = KeyspaceLayout {
    database_bytes: 80,
    store: Some(144),
    entries: [EntryForm::Whole, EntryForm::Key, EntryForm::Valueless, EntryForm::None, EntryForm::Key],
    ..REDIS_7_4
};
static REDIS_8_2: KeyspaceLayout = KeyspaceLayout {
    store: Some(136),
    listpack_at: 16,
    object: ObjectFlags { expires: 2, key: 1, value: 0, bits: 2 },
    is_whole: true,
    member_bytes: 16,
    ..REDIS_8_0
};
static REDIS_8_6: KeyspaceLayout = KeyspaceLayout {
    database_bytes: 96,
    others_at: [3, 9],
    exponents: Some(4),
    entries: [EntryForm::Chained, EntryForm::Key, EntryForm::None, EntryForm::None, EntryForm::Key],
    object: ObjectFlags { expires: 1, key: 2, value: 0, bits: 2 },
    is_counted: true,
    ..REDIS_8_2
};
static REDIS_8_10: KeyspaceLayout = KeyspaceLayout { store: Some(152), is_as_asked: true, ..REDIS_8_6 };
pub static VALKEY_8_0: KeyspaceLayout = KeyspaceLayout {
    database_bytes: 80,
    store: Some(16),
    entries: [EntryForm::Whole, EntryForm::Valueless, EntryForm::Embedding, EntryForm::None, EntryForm::Key],
    has_forms: true,
    ..REDIS_7_2
};

pub static VALKEY_8_1: KeyspaceLayout = KeyspaceLayout {
    database_bytes: 72,
    buckets: Some(Buckets { head: 80, field: [0, 8], has_members: false, stream: 0 }),
    object: ObjectFlags { expires: 1, key: 2, value: 0, bits: 2 },
    ..VALKEY_8_0
};
static VALKEY_9_0: KeyspaceLayout = KeyspaceLayout {
    others_at: [3, 7],
    has_pointers: true,
    is_whole: true,
    buckets: Some(Buckets { head: 88, field: [8, 16], has_members: false, stream: 0 }),
    ..VALKEY_8_1
};
pub static VALKEY_9_1: KeyspaceLayout = KeyspaceLayout {
    buckets: Some(Buckets { head: 88, field: [8, 16], has_members: true, stream: 8 }),
    object: ObjectFlags { expires: 1, key: 2, value: 4, bits: 3 },
    ..VALKEY_9_0
};

/// By product and release.
static LAYOUTS: [(&str, &str, &KeyspaceLayout); 14] = [
    ("redis", "6.0", &REDIS_6_0_9),
    ("redis", "6.2", &REDIS_6_2),
    ("redis", "7.0", &REDIS_7_0),
    ("redis", "7.2", &REDIS_7_2),
    ("redis", "7.4", &REDIS_7_4),
    ("redis", "8.0", &REDIS_8_0),
    ("redis", "8.2", &REDIS_8_2),
    ("redis", "8.6", &REDIS_8_6),
    ("redis", "8.10", &REDIS_8_10),
    ("valkey", "7.2", &REDIS_7_2),
    ("valkey", "8.0", &VALKEY_8_0),
    ("valkey", "8.1", &VALKEY_8_1),
    ("valkey", "9.0", &VALKEY_9_0),
    ("valkey", "9.1", &VALKEY_9_1),
];

impl KeyspaceLayout {
    /// Returns the layout of a server's version. Fails if the version is not known, and names it.
    pub fn of(identity: &Identity) -> anyhow::Result<&'static Self> {
        let product = identity.product.unwrap_or("a server");
        let version = identity.version.as_deref().unwrap_or("of an unknown version");
        if product == "redis" && matches!(version.as_bytes(), [b'6', b'.', b'0', b'.', b'0'..=b'8']) {
            return Ok(&REDIS_6_0);
        }
        // A series may be all that is known.
        let release = version.rsplit_once('.').filter(|(series, _)| series.contains('.'));
        let known = (product, release.map_or(version, |(series, _)| series));
        let layout = LAYOUTS.iter().find(|(product, series, _)| (*product, *series) == known);
        layout.map(|(_, _, layout)| *layout).with_context(|| {
            format!(
                "keys are not read from {product} {version} yet, only from Redis 6.0 to 8.2, 8.6 and 8.10, and Valkey 7.2 to 9.1"
            )
        })
    }

    /// Returns how a database's tables of things other than keys are laid out: without buckets.
    pub fn others(&'static self) -> &'static Self {
        if self.buckets.is_some() { &VALKEY_8_0 } else { self }
    }

    pub fn table_bytes(&self) -> u64 {
        match &self.buckets {
            Some(buckets) => buckets.head,
            None if self.exponents.is_some() => 56,
            None => 96,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, KeyspaceLayout, REDIS_7_0, VALKEY_8_1};

    #[test]
    fn a_version_that_is_not_known_is_refused_by_name() -> anyhow::Result<()> {
        let of = |product, version: &str| {
            KeyspaceLayout::of(&Identity { product, version: Some(version.to_owned()), ..Identity::default() })
        };
        for version in ["7.0.15", "7.0"] {
            assert_eq!(of(Some("redis"), version)?, &REDIS_7_0);
        }
        assert_eq!(of(Some("valkey"), "8.1.1")?, &VALKEY_8_1);
        let is_bare = |version| of(Some("redis"), version).map(|layout| layout.has_bare_strings);
        assert!(is_bare("6.0.8")? && !is_bare("6.0.9")? && !is_bare("6.0.10")? && !is_bare("6.0")?);
        for (product, version) in [("valkey", "7.0.15"), ("redis", "7.4-rc1"), ("redis", "8.20.1")] {
            let refused = of(Some(product), version).map_err(|error| error.to_string());
            let named = refused.is_err_and(|error| error.contains(&format!("{product} {version}")));
            assert!(named, "{product} {version}");
        }
        assert!(of(None, "7.0.15").is_err());
        Ok(())
    }
}
