//! Protects people whose browser asks the agent from other pages that are open in it, and from what the answers
//! contain: names and paths that anybody may have chosen.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::pages::CONTENT_SECURITY_POLICY;

/// Tells a server which page a request comes from (Fetch Metadata). Pages cannot forge it. Browsers send it to
/// localhost and over TLS; programs such as curl do not.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Adds the headers that tell browsers to load and run nothing else.
pub(crate) async fn protect(mut response: Response) -> Response {
    let policy = HeaderValue::from_str(&CONTENT_SECURITY_POLICY);
    let others = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The agent's own pages still say where a request comes from.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    let others = others.map(|(name, value)| (name, HeaderValue::from_static(value)));
    let headers = response.headers_mut();
    headers.extend(policy.map(|policy| (header::CONTENT_SECURITY_POLICY, policy)));
    headers.extend(others);
    response
}

/// Refuses read requests from another site's page, for paths where reading costs a server something.
pub(crate) async fn own_only(request: Request, next: Next) -> Response {
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    match request.headers().get_all(FETCH_SITE).iter().all(is_own) {
        true => next.run(request).await,
        false => refused(),
    }
}

/// Answers a page of another site.
pub(crate) fn refused() -> Response {
    let text = "refused: this request comes from a page of another site\n";
    (StatusCode::FORBIDDEN, text).into_response()
}
