//! What can be named without symbols: the functions that mention certain [`Texts`], those that do
//! not return, and product and version of the server ([`identity()`]).

mod identity;

use std::ops::Range;

use evictscope_machine::code::references::{self, Reference};
use evictscope_machine::elf::{Frame, Image};
use evictscope_model::FileAddress;

pub use self::identity::{Identity, PRODUCTS, identity, is_packed};

/// The functions of a server that do not return, and the texts that only they mention, which identify them in
/// a file without symbols. Hundreds of functions call them, so no compiler inlines them.
const NOT_RETURNING: [(&str, &[&str]); 2] = [
    ("_serverAssert", &["=== ASSERTION FAILED ===", "=== %sASSERTION FAILED ==="]),
    ("_serverPanic", &["Guru Meditation: %s #%s:%d"]),
];

/// Finds `wanted` and the texts that this step itself needs, and names the functions that do not
/// return, unless a symbol does.
pub fn find(image: &mut Image<'_>, wanted: &[&'static str]) -> Texts {
    let own: Vec<&str> = (NOT_RETURNING.iter().flat_map(|(_, own)| *own).copied()).collect();
    let texts = Texts::find(image, &[wanted, &own, &identity::TEXTS].concat());
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
    for (name, own) in NOT_RETURNING {
        for text in own {
            if image.function(name).is_none()
                && let [only] = texts.functions(image, text).as_slice()
            {
                image.name_function(name, *only);
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
        let places: Vec<_> = texts
            .iter()
            .map(|text| {
                let mut places = image.find_string(text);
                places.truncate(MAX_PLACES);
                (*text, places)
            })
            .collect();
        let targets: Vec<Range<FileAddress>> =
            places.iter().flat_map(|(_, places)| places).map(|place| *place..place.saturating_add(1)).collect();
        Self { references: references::find(image, &targets), places }
    }

    /// Returns whether the executable has the text.
    pub fn has(&self, text: &str) -> bool {
        !self.places_of(text).is_empty()
    }

    /// Returns the unwind tables' entries that mention the text, by address.
    pub fn mentioned_in(&self, text: &str) -> Vec<Frame> {
        let places = self.places_of(text);
        let mut frames: Vec<Frame> = self
            .references
            .iter()
            .filter(|reference| places.contains(&reference.target))
            .map(|reference| reference.frame)
            .collect();
        frames.sort_unstable_by_key(|frame| frame.start);
        frames.dedup();
        frames
    }

    /// Returns the functions that mention the text, found by [`functions_of`].
    pub fn functions(&self, image: &Image<'_>, text: &str) -> Vec<FileAddress> {
        functions_of(image, &self.mentioned_in(text))
    }

    /// Returns the addresses of the text.
    pub fn places_of(&self, text: &str) -> &[FileAddress] {
        self.places.iter().find(|(own, _)| *own == text).map_or(&[], |(_, places)| places)
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
        let mut from: Vec<FileAddress> = jumps
            .iter()
            .filter(|jump| (part.start..part.end).contains(&jump.target) && jump.frame != *part)
            .map(|jump| jump.frame.start)
            .collect();
        from.dedup();
        match from.as_slice() {
            [only] if image.is_function(*only) => Some(*only),
            _ => None,
        }
    };
    parts.iter().filter_map(owner).collect()
}
