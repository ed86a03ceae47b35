//! Gives the functions that do not return their names, where no symbol does.

use super::texts::Texts;
use crate::code::not_return::FUNCTIONS;
use crate::elf::image::Image;

/// Returns the texts that only these functions mention.
pub fn texts() -> Vec<&'static str> {
    let texts = FUNCTIONS.iter().flat_map(|(_, texts)| *texts);
    texts.copied().collect()
}

/// Names each function that is the only one to mention its text.
pub fn name_functions(image: &mut Image<'_>, texts: &Texts) {
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
