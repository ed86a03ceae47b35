//! The functions of Redis that do not return: what follows a call of them is something else.
//!
//! Hundreds of functions call them, so no compiler puts their bodies into all of these; the one
//! function that mentions the text is the function itself.

use crate::elf::image::Image;

use super::texts::Texts;

/// Their names, and the texts that only they mention.
const FUNCTIONS: [(&str, &str); 3] = [
    ("_serverAssert", "=== ASSERTION FAILED ==="),
    ("_serverAssert", "=== %sASSERTION FAILED ==="),
    ("_serverPanic", "Guru Meditation: %s #%s:%d"),
];

/// The texts that are needed.
pub const TEXTS: [&str; 3] = [FUNCTIONS[0].1, FUNCTIONS[1].1, FUNCTIONS[2].1];

/// Names them, where no symbol does.
pub fn name_functions(image: &mut Image<'_>, texts: &Texts) {
    for (name, text) in FUNCTIONS {
        if image.function(name).is_none()
            && let [only] = texts.functions(image, text).as_slice()
        {
            image.name_function(name, *only);
        }
    }
}
