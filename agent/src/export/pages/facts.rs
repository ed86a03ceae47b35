//! Single facts, and the words that several pages have for them.

use maud::{Markup, html};

use crate::records::Occasion;

/// Shows a fact in a list of them.
pub fn fact(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Returns what a record is about.
pub fn occasion(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Burst => "Burst",
        Occasion::Stall => "Stall",
        Occasion::Asked => "Record",
    }
}

/// Returns a burst's kind in words.
pub fn kind(name: &str) -> &str {
    match name {
        "self_amplifying" => "feeds on itself",
        other => other,
    }
}
