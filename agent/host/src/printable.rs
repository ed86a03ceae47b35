//! Names that others chose, as people may read them.

/// Returns a name on one line, without what a terminal obeys or does not show: each control character, and each that
/// turns the direction of writing or has no width, is written as in JSON: `\u001b`.
pub fn printable(name: &str) -> String {
    let mut printable = String::with_capacity(name.len());
    for letter in name.chars() {
        match is_printable(letter) {
            true => printable.push(letter),
            false => printable += &format!("\\u{:04x}", u32::from(letter)),
        }
    }
    printable
}

fn is_printable(letter: char) -> bool {
    let is_hidden = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !letter.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        for (name, shown) in [
            ("/run/redis é 漢.sock", "/run/redis é 漢.sock"),
            ("a\u{1b}[2Jb\u{7}c", "a\\u001b[2Jb\\u0007c"),
            ("a\nb\rc\u{7f}\u{9b}31m", "a\\u000ab\\u000dc\\u007f\\u009b31m"),
            ("a\u{202e}b\u{2066}c\u{200b}", "a\\u202eb\\u2066c\\u200b"),
        ] {
            assert_eq!(printable(name), shown);
            assert_eq!(printable(shown), shown, "it stays the same");
        }
    }
}
