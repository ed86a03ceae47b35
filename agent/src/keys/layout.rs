//! How versions lay out their databases, their hash tables, and values.

use anyhow::Context as _;
use evictscope_plan::Identity;

/// How a version lays out what is read of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a database.
    pub database_bytes: u64,
    /// The word of a database at which its tables of other things than keys begin, and the one behind them, its number.
    pub others: [usize; 2],
    /// Where the pointer to its tables is in a `kvstore`, if a database has these instead of tables.
    pub store: Option<u64>,
    /// Whether the sizes of tables are exponents, as since Redis 7.0.
    pub has_exponents: bool,
    /// What the lowest bits of a pointer to an entry say: 000, 010, 100, 110, and any odd number.
    pub entries: [Form; 5],
    /// Whether each form of an entry counts as what it takes, and each string as what was asked for.
    pub is_exact: bool,
    /// Whether the fields of hashes are `mstr`.
    pub has_fields: bool,
    /// Whether streams have space in advance.
    pub is_ahead: bool,
}

/// What an entry of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing that there is.
    None,
    /// Its key, its value, and the next.
    Whole,
    /// Its key and the next.
    Valueless,
    /// Its value, the next, and its key itself.
    Embedding,
    /// The pointer is to the key.
    Key,
}

static REDIS_6_0: Layout = Layout {
    database_bytes: 72,
    others: [2, 5],
    store: None,
    has_exponents: false,
    entries: [Form::Whole, Form::None, Form::None, Form::None, Form::None],
    is_exact: false,
    has_fields: false,
    is_ahead: false,
};
static REDIS_6_2: Layout = Layout {
    is_ahead: true,
    ..REDIS_6_0
};
pub static REDIS_7_0: Layout = Layout {
    database_bytes: 80,
    has_exponents: true,
    ..REDIS_6_2
};
/// Valkey 7.2 is the same.
static REDIS_7_2: Layout = Layout {
    database_bytes: 88,
    others: [2, 6],
    entries: [
        Form::Whole,
        Form::Valueless,
        Form::None,
        Form::None,
        Form::Key,
    ],
    ..REDIS_7_0
};
static REDIS_7_4: Layout = Layout {
    others: [3, 7],
    store: Some(128),
    has_fields: true,
    ..REDIS_7_2
};
static REDIS_8_0: Layout = Layout {
    database_bytes: 80,
    store: Some(144),
    entries: [
        Form::Whole,
        Form::None,
        Form::Valueless,
        Form::None,
        Form::Key,
    ],
    ..REDIS_7_4
};
static VALKEY_8_0: Layout = Layout {
    database_bytes: 80,
    store: Some(16),
    entries: [
        Form::Whole,
        Form::Valueless,
        Form::Embedding,
        Form::None,
        Form::Key,
    ],
    is_exact: true,
    ..REDIS_7_2
};

/// By product and release.
static LAYOUTS: [(&str, &str, &Layout); 8] = [
    ("redis", "6.0.", &REDIS_6_0),
    ("redis", "6.2.", &REDIS_6_2),
    ("redis", "7.0.", &REDIS_7_0),
    ("redis", "7.2.", &REDIS_7_2),
    ("redis", "7.4.", &REDIS_7_4),
    ("redis", "8.0.", &REDIS_8_0),
    ("valkey", "7.2.", &REDIS_7_2),
    ("valkey", "8.0.", &VALKEY_8_0),
];

impl Layout {
    /// Returns the layout of a server's version.
    ///
    /// # Errors
    ///
    /// Names a version that is not known.
    pub fn of(identity: &Identity) -> anyhow::Result<&'static Self> {
        let product = identity.product.unwrap_or("a server");
        let version = identity
            .version
            .as_deref()
            .unwrap_or("of an unknown version");
        let layout = LAYOUTS
            .iter()
            .find(|(known, release, _)| *known == product && version.starts_with(release));
        layout.map(|(_, _, layout)| *layout).with_context(|| {
            format!(
                "keys are not read from {product} {version} yet, only from Redis 6.0 to 8.0 and Valkey 7.2 and 8.0"
            )
        })
    }

    /// Returns how many bytes a `dict` takes.
    pub fn dict_bytes(&self) -> u64 {
        if self.has_exponents { 56 } else { 96 }
    }
}
