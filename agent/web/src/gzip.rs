//! Compresses answers for those who accept it.

use std::io::{self, Write as _};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A shorter answer fits into a packet as it is.
const LEAST: usize = 1024;
/// A longer one takes more than some milliseconds.
const LONG: usize = 1 << 20;
/// The metrics of 64 servers take a millisecond so, and are a tenth as long; the level that others choose takes sixteen
/// times as long, and saves a fifth more.
const LEVEL: Compression = Compression::fast();

/// Answers a request as `next` does, compressed where that is accepted and of use.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let is_accepted = is_accepted(request.headers());
    let mut response = next.run(request).await;
    // Whoever keeps answers is not to give this one to others.
    let vary = HeaderValue::from_static("Accept-Encoding");
    response.headers_mut().append(header::VARY, vary);
    if !is_accepted || is_packed(&response) {
        return response;
    }
    match compressed(response).await {
        Ok(response) => response,
        Err(error) => {
            let text = format!("cannot compress the answer: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

async fn compressed(response: Response) -> io::Result<Response> {
    let (mut parts, body) = response.into_parts();
    // All answers are made in memory.
    let bytes = to_bytes(body, usize::MAX).await.map_err(io::Error::other)?;
    let packed = match bytes.len() {
        ..LEAST => return Ok(Response::from_parts(parts, Body::from(bytes))),
        LEAST..LONG => packed(&bytes)?,
        // A scrape is not to wait for that.
        LONG.. => {
            let packing = tokio::task::spawn_blocking(move || packed(&bytes));
            packing.await.map_err(io::Error::other)??
        }
    };
    let gzip = HeaderValue::from_static("gzip");
    parts.headers.insert(header::CONTENT_ENCODING, gzip);
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(packed)))
}

fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), LEVEL);
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Tells whether an answer is compressed already, as a profile is. All others are texts.
fn is_packed(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|content_type| content_type == "application/octet-stream")
}

/// Tells whether gzip is accepted (RFC 9110, section 12.5.3).
fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = values.filter_map(|value| value.to_str().ok());
    let mut all = false;
    for coding in codings.flat_map(|value| value.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=");
        let is_wanted = weight.is_none_or(|weight| weight.parse() != Ok(0.0_f32));
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => return is_wanted,
            "*" => all = is_wanted,
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::is_accepted;

    #[test]
    fn gzip_is_accepted_where_it_is_named_and_not_refused() {
        for (value, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("*", true),
            ("identity, *;q=0.1", true),
            ("*;q=0, gzip", true),
            ("gzip;q=0, *", false),
            ("gzip; q=0.000", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(is_accepted(&headers), expected, "{value}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }
}
