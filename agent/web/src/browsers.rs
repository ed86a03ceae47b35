//! Protects people whose browser asks the agent, from other pages that the same browser has open, and from what the answers
//! contain: names and paths that anybody may have chosen.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::pages::CONTENT_SECURITY_POLICY;

/// Tells a server which page a request comes from (Fetch Metadata). Pages cannot forge it. Browsers send it to localhost and
/// where there is TLS; elsewhere only `Origin` tells, which they send with what changes something.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Answers as `next` does, with the headers that tell browsers to load and run nothing else. A request that changes
/// something is refused where it comes from another site's page.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = match is_safe || is_own(request.headers()) {
        true => next.run(request).await,
        false => refused(),
    };
    let policy = HeaderValue::from_str(&CONTENT_SECURITY_POLICY);
    let others = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The own pages still say where a request comes from.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    let others = others.map(|(name, value)| (name, HeaderValue::from_static(value)));
    let headers = response.headers_mut();
    headers.extend(policy.map(|policy| (header::CONTENT_SECURITY_POLICY, policy)));
    headers.extend(others);
    response
}

/// Refuses requests from another site's page, also those that only read: for what costs a server something.
pub(super) async fn own_only(request: Request, next: Next) -> Response {
    match is_own(request.headers()) {
        true => next.run(request).await,
        false => refused(),
    }
}

fn refused() -> Response {
    let text = "refused: this request comes from a page of another site\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

/// Tells whether no page of another site has made this request. Programs such as curl send neither header.
fn is_own(headers: &HeaderMap) -> bool {
    let is_same_site = |site: &HeaderValue| site == "same-origin" || site == "none";
    if !headers.get_all(FETCH_SITE).iter().all(is_same_site) {
        return false;
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let is_same_host = |origin: &HeaderValue| {
        let origin = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.parse::<Uri>().ok());
        let authority = origin.as_ref().and_then(Uri::authority);
        let asked = authority.zip(host);
        asked.is_some_and(|(origin, host)| origin.as_str().eq_ignore_ascii_case(host))
    };
    headers.get_all(header::ORIGIN).iter().all(is_same_host)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::is_own;

    #[test]
    fn pages_of_other_sites_are_told_from_own_pages_and_programs() {
        let host = ("host", "h1:9739");
        for (headers, expected) in [
            (&[host][..], true),
            (&[host, ("origin", "http://h1:9739")], true),
            (&[host, ("origin", "https://H1:9739")], true),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "none")], true),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("origin", "http://h1")], false),
            (&[host, ("origin", "http://evil.example")], false),
            (&[host, ("origin", "null")], false),
            (&[host, ("origin", "")], false),
            (
                &[
                    host,
                    ("origin", "http://h1:9739"),
                    ("sec-fetch-site", "cross-site"),
                ],
                false,
            ),
            (
                &[
                    host,
                    ("origin", "http://h1:9739"),
                    ("origin", "http://evil.example"),
                ],
                false,
            ),
            (&[("origin", "http://h1:9739")], false),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
            }
            assert_eq!(is_own(&map), expected, "{headers:?}");
        }
    }
}
