//! Colours, if the user wants them.

use std::sync::LazyLock;

use ratatui::style::{Color, Modifier, Style};

/// Whether to use colours: yes, unless the variable `NO_COLOR` says otherwise (no-color.org).
static ARE_WANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));

pub fn of(colour: Color) -> Style {
    match *ARE_WANTED {
        true => Style::new().fg(colour),
        false => Style::new(),
    }
}

/// Returns the style for what somebody should look at. It differs without colours, too.
pub fn alarm() -> Style {
    of(Color::Red).add_modifier(Modifier::BOLD)
}
