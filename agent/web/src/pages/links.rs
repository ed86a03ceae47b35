//! Addresses of pages.

use evictscope_records::RecordId;
use form_urlencoded::byte_serialize;

/// Returns the address of a server's page. Its label may be a path, with any characters.
pub fn server(label: &str) -> String {
    format!("/server/{}", escaped(label))
}

/// Returns the address of a record's page.
pub fn record(id: &RecordId) -> String {
    format!("/bursts/{id}")
}

/// Returns the address of a record as JSON.
pub fn record_json(id: &RecordId) -> String {
    format!("/api/v1/records/{id}")
}

/// Returns an address below `path` with the label as a parameter.
pub fn about(path: &str, label: &str) -> String {
    format!("{path}?server={}", escaped(label))
}

/// Escapes a text for one segment of a path, or for a parameter: all but letters, digits, `-`, `.`, `_` and `*`. A
/// space is a plus only in forms.
fn escaped(text: &str) -> String {
    let escaped: String = byte_serialize(text.as_bytes()).collect();
    escaped.replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::{about, server};

    #[test]
    fn a_label_stays_one_segment() {
        let label = "/tmp/a b+c/\"<script>'&?#%2F.sock";
        let escaped = "%2Ftmp%2Fa%20b%2Bc%2F%22%3Cscript%3E%27%26%3F%23%252F.sock";
        assert_eq!(server(label), format!("/server/{escaped}"));
        assert_eq!(about("/x", label), format!("/x?server={escaped}"));
        assert_eq!(server("6379"), "/server/6379");
    }
}
