//! What the functions are called, and whose they are, where symbols do not say it.
//!
//! [`frames`] has the bounds of all functions. [`texts`] tells which of them mention certain texts,
//! by the [`references`] in their code. From that follow the [`eviction_call()`], the functions that
//! do [`not_return`], and product and version ([`identity()`]). Where a symbol answers too, both must
//! agree.

mod identity;
mod not_return;
mod texts;

#[cfg(test)]
mod tests;

use crate::elf::image::Image;

pub use identity::{Identity, identity};
pub use texts::Texts;

/// Names the functions that the texts name and no symbol does, and returns the texts: those that are
/// needed for it, and those that are `wanted` besides.
pub fn find(image: &mut Image<'_>, wanted: &[&'static str]) -> Texts {
    let needed = [wanted, &not_return::TEXTS, &identity::TEXTS];
    let texts = Texts::find(image, &needed.concat());
    not_return::name_functions(image, &texts);
    texts
}
