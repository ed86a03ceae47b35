//! The head of a table.

use maud::{Markup, html};

/// Returns the head of a table, with the names of its columns and whether each has numbers.
pub fn head<const COLUMNS: usize>(columns: [(&str, bool); COLUMNS]) -> Markup {
    html! {
        thead {
            tr {
                @for (name, has_numbers) in columns {
                    @if has_numbers { th.number scope="col" { (name) } } @else { th scope="col" { (name) } }
                }
            }
        }
    }
}
