//! How HTTP is protected: TLS and passwords, in the format of Prometheus' exporter-toolkit.
//!
//! The file, and the certificates and keys that it names, are read every two seconds. A change takes effect with the
//! next connection (TLS) or request (passwords), once two reads have found the same: a half-written file may be a valid
//! one that asks for less. Files that cannot be used, or that protect nothing, are refused with the reason, and the
//! last usable ones stay in force.
//!
//! Deliberately absent: settings of that format that protect nothing (client certificates that nobody verifies) or are
//! not about access (HTTP/2, headers, rate limits, cipher suites). They are refused, not ignored.

mod config;
mod host_names;
#[cfg(test)]
pub mod tests;
mod users;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headers::HeaderMapExt as _;
use headers::authorization::{Authorization, Basic};

pub use self::config::{Web, WebConfig};

/// Who may make a server do something (a profile, a record).
#[derive(Clone)]
pub struct Requesters {
    /// What identifies clients.
    pub web: Web,
    /// Everyone may, even if nothing identifies them.
    pub all: bool,
}

/// Lets a request that makes a server do something pass, or answers why not.
pub async fn guard_requests(State(requesters): State<Requesters>, request: Request, next: Next) -> Response {
    if requesters.all || requesters.web.now().tells_clients() {
        return next.run(request).await;
    }
    let text = "refused: on an address that other hosts reach, records and profiles are made for those with a password or a \
                certificate (web-config), or for everyone with open-requests in the agent's configuration\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

/// Lets a request pass, or answers what it lacks.
pub async fn guard(State(web): State<Web>, request: Request, next: Next) -> Response {
    let protection = web.now();
    let hosts = protection.host_names.as_ref();
    if let Some(host) = hosts.and_then(|hosts| hosts.stranger(&request)) {
        let text = format!(
            "{host} is not a name that the agent knows for this host: use an address, or add the name to host-name in its \
             configuration\n"
        );
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    let Some(users) = &protection.users else { return next.run(request).await };
    if let Some(Authorization(shown)) = request.headers().typed_get::<Authorization<Basic>>()
        && users.admit(shown.username(), shown.password()).await
    {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"evictscope\"")];
    (StatusCode::UNAUTHORIZED, ask, "unauthorized\n").into_response()
}
