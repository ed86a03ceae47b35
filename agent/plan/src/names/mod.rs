//! What can be named without symbols: the functions that mention certain [`Texts`], those of them
//! that do not return, and product and version of the server ([`identity()`]).

mod identity;
mod texts;

use crate::code::not_return::FUNCTIONS;
use crate::elf::image::Image;

pub use identity::{Identity, identity};
pub use texts::{Texts, functions_of};

/// Finds `wanted` and the texts that this step needs itself, and gives the functions that do not
/// return their names where no symbol does.
pub fn find(image: &mut Image<'_>, wanted: &[&'static str]) -> Texts {
    let own: Vec<&str> = (FUNCTIONS.iter().flat_map(|(_, own)| *own).copied()).collect();
    let texts = Texts::find(image, &[wanted, &own, &identity::TEXTS].concat());
    name_functions(image, &texts);
    texts
}

/// Names each function that does not return and is the only one to mention its text.
fn name_functions(image: &mut Image<'_>, texts: &Texts) {
    for (name, own) in FUNCTIONS {
        for text in own {
            if image.function(name).is_none()
                && let [only] = texts.functions(image, text).as_slice()
            {
                image.name_function(name, *only);
            }
        }
    }
}
