//! What can be named without symbols: the functions that mention certain [`Texts`], those that do not return, and
//! product and version of the server.
//!
//! Product and version are found by what it prints when asked for its version: the function that mentions the format of
//! that line mentions the version too. Many texts only look like a version: the command table has the version that
//! added each command, and Valkey also has the version of Redis that it is compatible with.

use std::ops::Range;
use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_machine::code::bounds;
use evictscope_machine::code::references::{self, Reference};
use evictscope_machine::elf::{Frame, Image, Symbol};
use evictscope_model::FileAddress;
use serde::Serialize;

/// The functions of a server that do not return, and the texts that only they mention, which identify them in
/// a file without symbols. Hundreds of functions call them, so no compiler inlines them.
const NOT_RETURNING: [(&str, &[&str]); 2] = [
    ("_serverAssert", &["=== ASSERTION FAILED ===", "=== %sASSERTION FAILED ==="]),
    ("_serverPanic", &["Guru Meditation: %s #%s:%d"]),
];

/// Finds `wanted` and the texts that this step itself needs, and names the functions that do not
/// return, unless a symbol does.
pub fn find(image: &mut Image<'_>, wanted: &[&'static str]) -> Texts {
    bounds::complete(image);
    let marks: Vec<&str> = (NOT_RETURNING.iter().flat_map(|(_, marks)| *marks).copied()).collect();
    let texts = Texts::find(image, &[wanted, &marks, &TEXTS].concat());
    tell_not_returning(image);
    name_functions(image, &texts);
    texts
}

/// Tells an executable which functions of a server do not return.
pub fn tell_not_returning(image: &mut Image<'_>) {
    image.not_returning = NOT_RETURNING.map(|(name, _)| name).to_vec();
}

/// Names each function that does not return and is the only one to mention its text.
fn name_functions(image: &mut Image<'_>, texts: &Texts) {
    for (name, marks) in NOT_RETURNING {
        for text in marks {
            if image.symbols.function(name).is_none()
                && let [only] = texts.functions(image, text).as_slice()
            {
                image.symbols.add_function(name, Symbol { address: *only, size: 0 });
            }
        }
    }
}

/// The most places of one text that are looked at; no linker leaves that many copies.
const MAX_PLACES: usize = 16;

/// Where texts are, and what mentions them.
#[derive(Debug)]
pub struct Texts {
    places: Vec<(&'static str, Vec<FileAddress>)>,
    references: Vec<Reference>,
}

impl Texts {
    /// Looks for `texts`, each NUL-terminated, and for what mentions them.
    pub fn find(image: &Image<'_>, texts: &[&'static str]) -> Self {
        let found = |text: &'static str| {
            let mut places = image.find_string(text);
            places.truncate(MAX_PLACES);
            (text, places)
        };
        let places: Vec<_> = texts.iter().copied().map(found).collect();
        let targets: Vec<Range<FileAddress>> =
            places.iter().flat_map(|(_, places)| places).map(|place| *place..place.saturating_add(1)).collect();
        Self { references: references::find(image, &targets), places }
    }

    pub fn has(&self, text: &str) -> bool {
        !self.places_of(text).is_empty()
    }

    /// Returns the unwind tables' entries that mention the text, by address.
    pub fn mentioned_in(&self, text: &str) -> Vec<Frame> {
        let places = self.places_of(text);
        let references = self.references.iter().filter(|reference| places.contains(&reference.target));
        let mut frames: Vec<Frame> = references.map(|reference| reference.frame).collect();
        frames.sort_unstable_by_key(|frame| frame.start);
        frames.dedup();
        frames
    }

    /// Returns the functions that mention the text, found by [`functions_of`].
    pub fn functions(&self, image: &Image<'_>, text: &str) -> Vec<FileAddress> {
        functions_of(image, &self.mentioned_in(text))
    }

    pub fn places_of(&self, text: &str) -> &[FileAddress] {
        self.places.iter().find(|(known, _)| *known == text).map_or(&[], |(_, places)| places)
    }
}

/// Returns the functions that entries of the unwind tables belong to, by address. If an entry is for
/// a part that the compiler moved elsewhere, its function is the only one that jumps there.
pub fn functions_of(image: &Image<'_>, frames: &[Frame]) -> Vec<FileAddress> {
    let (whole, parts): (Vec<Frame>, Vec<Frame>) = (frames.iter()).partition(|frame| image.is_function(frame.start));
    let mut functions: Vec<FileAddress> = whole.iter().map(|frame| frame.start).collect();
    functions.extend(owners(image, &parts));
    functions.sort_unstable();
    functions.dedup();
    functions
}

/// Finds the function that jumps to each part, if it is the only one.
fn owners(image: &Image<'_>, parts: &[Frame]) -> Vec<FileAddress> {
    let parts = parts.get(..MAX_PLACES).unwrap_or(parts);
    let targets: Vec<Range<FileAddress>> = parts.iter().map(|part| part.start..part.end).collect();
    let jumps = references::find(image, &targets);
    let owner = |part: &Frame| {
        let leads_there = |jump: &&Reference| (part.start..part.end).contains(&jump.target) && jump.frame != *part;
        let mut from: Vec<FileAddress> = jumps.iter().filter(leads_there).map(|jump| jump.frame.start).collect();
        from.dedup();
        match from.as_slice() {
            [only] if image.is_function(*only) => Some(*only),
            _ => None,
        }
    };
    parts.iter().filter_map(owner).collect()
}

/// The products.
pub const PRODUCTS: [&str; 4] = ["redis", "valkey", "keydb", "redict"];
/// The formats of the line that `--version` prints, and the products that print it.
const LINES: [(&str, Option<&str>); 5] = [
    ("Redis server v=%s sha=%s:%d malloc=%s bits=%d build=%llx\n", Some(PRODUCTS[0])),
    ("Server v=%s sha=%s:%d malloc=%s bits=%d build=%llx\n", Some(PRODUCTS[1])),
    ("KeyDB server v=%s sha=%s:%d malloc=%s bits=%d build=%llx\n", Some(PRODUCTS[2])),
    ("Redict server v=%s sha=%s:%d malloc=%s bits=%d build=%llx\n", Some(PRODUCTS[3])),
    ("v=%s sha=%s:%d malloc=%s bits=%d build=%llx", None),
];
/// The formats of the second step, if that line is made in two steps.
const SECOND_STEPS: [(&str, &str); 2] = [("Redis server %s\n", PRODUCTS[0]), ("Valkey server %s\n", PRODUCTS[1])];
/// The oldest series of Redis that is supported. Earlier ones have no table of directives with the address of
/// `maxmemory`, and no member for the client buffers.
const OLDEST_REDIS: u32 = 6;
/// Bytes at the beginning of a file that hold the mark of UPX. No server's program headers take as much.
const MARKED: usize = 1024;
/// The longest text that can be a version, in bytes.
const LONGEST: usize = 11;

/// The texts that are needed.
pub const TEXTS: [&str; 7] =
    [LINES[0].0, LINES[1].0, LINES[2].0, LINES[3].0, LINES[4].0, SECOND_STEPS[0].0, SECOND_STEPS[1].0];

/// Which server an executable is.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// GNU build id, lower-case hexadecimal.
    pub build_id: Option<String>,
    /// `redis`, `valkey`, `keydb` or `redict`.
    #[borsh(deserialize_with = "crate::sent::product")]
    pub product: Option<&'static str>,
    /// Version of the server, such as `7.0.15`, or its series (`7.0`) if no more is certain.
    pub version: Option<String>,
    /// Virtual address of the executable's first instruction (`e_entry`), which tells where a process has it loaded.
    #[serde(skip)]
    pub entry_point: FileAddress,
}

impl Identity {
    /// Returns what the ELF headers say.
    pub fn of(image: &Image<'_>) -> Self {
        Self { build_id: image.build_id.clone(), entry_point: image.entry, ..Self::default() }
    }

    /// Returns the unit of idle times in the eviction pool of this version, if that is known:
    /// `estimateObjectIdleTime()` returns milliseconds, and `objectGetIdleness()` of Valkey 9.1 seconds.
    pub fn idle_time_unit(&self) -> Option<Duration> {
        let mut numbers = self.version.as_deref().unwrap_or_default().split('.');
        match (self.product?, numbers.next()?, numbers.next()) {
            ("redis", ..) | ("valkey", "7" | "8", _) | ("valkey", "9", Some("0")) => Some(Duration::from_millis(1)),
            ("valkey", "9", Some("1")) => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Returns where in a `client` of Redis 6 the list of its replies is, if the version is known.
    pub fn client_replies(&self) -> Option<u64> {
        let mut numbers = self.version.as_deref()?.split('.');
        match (self.product?, numbers.next()?, numbers.next()?) {
            ("redis", "6", "0") => match numbers.next()?.parse() {
                Ok(0..=8) => Some(128),
                Ok(9..=20) => Some(136),
                _ => None,
            },
            ("redis", "6", "2") => Some(152),
            _ => None,
        }
    }

    /// Returns why this server is not supported, if it is not.
    pub fn unsupported(&self) -> Option<String> {
        let version = self.version.as_deref();
        let major = || version?.split('.').next()?.parse::<u32>().ok();
        match self.product {
            Some("keydb") => {
                Some("this is KeyDB, which evicts in several threads: only Redis and Valkey are supported".to_owned())
            }
            Some("redis") if major().is_some_and(|major| major < OLDEST_REDIS) => Some(format!(
                "Redis {} is too old: Redis {OLDEST_REDIS}.0 is the oldest that is supported",
                version.unwrap_or_default()
            )),
            _ => None,
        }
    }
}

/// Returns whether UPX has packed an executable: it leaves its mark after the program headers.
pub fn is_packed(data: &[u8]) -> bool {
    data.get(..MARKED).unwrap_or(data).windows(4).any(|mark| mark == b"UPX!")
}

/// Returns whether it is the dynamic loader: glibc's, or musl's, which has all of libc.
pub fn is_loader(image: &Image<'_>) -> bool {
    image.symbols.function("__tls_get_addr").is_some() && image.symbols.function("main").is_none()
}

/// Finds product and version, as far as they are certain.
pub fn identity(image: &Image<'_>, texts: &Texts) -> Identity {
    let mut lines = LINES.iter().filter(|(text, _)| texts.has(text));
    let (Some((line, product)), None) = (lines.next(), lines.next()) else { return Identity::of(image) };
    let mut products = SECOND_STEPS.iter().filter(|(text, _)| texts.has(text));
    let product = product.or_else(|| match (products.next(), products.next()) {
        (Some((_, only)), None) => Some(only),
        _ => None,
    });
    Identity { product, version: version(image, texts, line), ..Identity::of(image) }
}

/// Finds the only version in the function that mentions `line`.
fn version(image: &Image<'_>, texts: &Texts, line: &str) -> Option<String> {
    let frames = texts.mentioned_in(line);
    let mut versions: Vec<&str> = frames
        .iter()
        .flat_map(|frame| {
            let mut mentions = image.architecture.mentions();
            references::instructions(image, *frame).flat_map(move |instruction| mentions.of(&instruction))
        })
        .filter_map(|address| version_at(image, address))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    if let [only] = versions.as_slice() { Some((*only).to_owned()) } else { None }
}

fn version_at<'data>(image: &Image<'data>, address: FileAddress) -> Option<&'data str> {
    let text = std::str::from_utf8(image.text_at(address, LONGEST)?).ok()?;
    let is_version = text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_version.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::Identity;

    #[test]
    fn old_servers_and_keydb_are_not_supported() {
        let of = |product: Option<&'static str>, version: &str| {
            let identity = Identity {
                product,
                version: Some(version.to_owned()).filter(|version| !version.is_empty()),
                ..Identity::default()
            };
            identity.unsupported()
        };
        assert!(of(Some("redis"), "5.0.14").is_some_and(|why| why.contains("5.0.14")));
        assert!(of(Some("keydb"), "6.3.4").is_some_and(|why| why.contains("KeyDB")));
        for (product, version) in [
            (Some("redis"), "6.0.0"),
            (Some("redis"), "255.255.255"),
            (Some("redis"), ""),
            (Some("valkey"), "7.2.5"),
            (None, "5.0.14"),
        ] {
            assert_eq!(of(product, version), None, "{product:?} {version}");
        }
    }
}
