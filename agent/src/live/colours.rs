//! Colours, where the user wants them.

use ratatui::style::{Color, Modifier, Style};

/// Whether to use colours.
#[derive(Clone, Copy, Debug)]
pub struct Colours(bool);

impl Colours {
    /// Uses colours unless the variable `NO_COLOR` says otherwise (no-color.org).
    pub fn wanted() -> Self {
        Self(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    /// Returns a style in that colour.
    pub fn of(self, colour: Color) -> Style {
        match self.0 {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// Returns the style of what somebody should look at. It differs without colours, too.
    pub fn alarm(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }
}
