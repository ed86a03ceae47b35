//! What can be named without symbols: the functions that mention certain [`Texts`], those of them
//! that do not return, and product and version of the server ([`identity()`]).

mod identity;
mod not_return;
mod texts;

use crate::elf::image::Image;

pub use identity::{Identity, identity};
pub use texts::Texts;

/// Finds `wanted` and the texts that this step needs itself, and gives the functions that do not
/// return their names where no symbol does.
pub fn find(image: &mut Image<'_>, wanted: &[&'static str]) -> Texts {
    let needed = [wanted, &not_return::texts(), &identity::TEXTS];
    let texts = Texts::find(image, &needed.concat());
    not_return::name_functions(image, &texts);
    texts
}
