//! What can be named without symbols: the functions that mention certain [`Texts`], those that do
//! not return, and product and version of the server ([`identity()`]).

mod identity;
mod texts;

use evictscope_machine::elf::Image;

pub use identity::{Identity, PRODUCTS, identity, is_packed};
pub use texts::{Texts, functions_of};

/// The functions of a server that do not return, and the texts that only they mention, which identify them in
/// a file without symbols. Hundreds of functions call them, so no compiler inlines them.
const NOT_RETURNING: [(&str, &[&str]); 2] = [
    (
        "_serverAssert",
        &["=== ASSERTION FAILED ===", "=== %sASSERTION FAILED ==="],
    ),
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
