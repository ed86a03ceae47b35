//! The HTTP server.
//!
//! Protects people whose browser asks the agent from other pages that are open in it, and from what the answers contain: names
//! and paths that anybody may have chosen.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use anyhow::anyhow;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::net::{TcpListener, TcpSocket};

use super::connections::{Connections, PATIENCE};
use crate::pages::CONTENT_SECURITY_POLICY;
use crate::published::shared::Shared;
use crate::routes::router::router;
use crate::web_config::{Requesters, Web};

/// Clients that may wait in the kernel until they are accepted. A client that comes when the queue is full tries again after a
/// second, so the queue must hold a crowd that comes at once.
const QUEUE: u32 = 1024;

/// Listens on an address, for [`serve`]. Async because a socket needs the runtime.
///
/// # Errors
///
/// Says why it cannot listen there, and what to do.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "{address} is already in use: is another evictscope running? Choose another address with --listen"
        ),
        io::ErrorKind::PermissionDenied => anyhow!(
            "may not listen on {address}: run as root, or choose a port above 1023 with --listen"
        ),
        io::ErrorKind::AddrNotAvailable => {
            anyhow!("{address} is not an address of this host: choose another with --listen")
        }
        _ => anyhow!("cannot listen on {address} ({error}): choose another address with --listen"),
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // The address can be taken again while connections of a previous agent are being closed.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// Serves metrics and pages to the clients that `web` admits until `shutdown` completes, and returns at most 1 s later. On an
/// address that other hosts reach, `open_requests` says whether clients with neither a password nor a certificate may have
/// records and profiles made.
pub async fn serve(
    listener: TcpListener,
    shared: Shared,
    web: Web,
    open_requests: bool,
    shutdown: impl Future<Output = ()>,
) {
    let address = listener.local_addr();
    let is_loopback = address.is_ok_and(|address| address.ip().is_loopback());
    let requesters = Requesters {
        web: web.clone(),
        all: open_requests || is_loopback,
    };
    let router = router(shared, requesters);
    let connections = Connections::new(web, router, PATIENCE);
    connections.serve(listener, shutdown).await;
}

/// Tells a server which page a request comes from (Fetch Metadata). Pages cannot forge it. Browsers send it to localhost and
/// over TLS; programs such as curl do not.
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

#[cfg(test)]
mod tests;
