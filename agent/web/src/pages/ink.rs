//! The colours of drawings. They lie between black and white, to stand out from both.

use maud::{Markup, html};
use plotters::style::RGBColor;

/// What a colour is for. The style sheet gives lines dashes by their colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Evictions.
    Red,
    /// What otherwise matters most.
    Blue,
    /// Limits.
    Orange,
    /// Expiry.
    Green,
    /// Phases.
    Purple,
    /// Waiting for a CPU.
    Teal,
    /// What is not known, and the grid.
    Grey,
}

impl Ink {
    /// Returns the colour.
    pub fn colour(self) -> RGBColor {
        match self {
            Self::Red => RGBColor(214, 69, 65),
            Self::Blue => RGBColor(47, 124, 210),
            Self::Orange => RGBColor(204, 112, 0),
            Self::Green => RGBColor(38, 148, 90),
            Self::Purple => RGBColor(146, 96, 204),
            Self::Teal => RGBColor(0, 140, 150),
            Self::Grey => RGBColor(128, 128, 128),
        }
    }

    /// Returns the colour as SVG spells it.
    pub fn text(self) -> String {
        let RGBColor(red, green, blue) = self.colour();
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

/// Returns a small sample of a line, or of an area, for a legend.
pub fn swatch(ink: Ink, is_area: bool) -> Markup {
    html! {
        svg.swatch width="22" height="10" aria-hidden="true" {
            @if is_area {
                rect width="22" height="10" fill=(ink.text()) {}
            } @else {
                polyline points="0,5 22,5" fill="none" stroke=(ink.text()) stroke-width="2" {}
            }
        }
    }
}
