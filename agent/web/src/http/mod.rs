//! The HTTP server.

mod connections;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use anyhow::anyhow;
use tokio::net::{TcpListener, TcpSocket};

use self::connections::{Connections, PATIENCE};
use crate::routes::router;
use crate::shared::Shared;
use crate::web_config::{Requesters, Web};

/// Clients that may wait in the kernel until they are accepted. A client that comes when the queue is full tries again
/// after a second, so the queue must hold a crowd that comes at once.
const QUEUE: u32 = 1024;

/// Listens on an address, for [`serve`]. Async because a socket needs the runtime. The error says why it cannot
/// listen there, and what to do.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow!("{address} is already in use: is another evictscope running? Choose another address with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("may not listen on {address}: run as root, or choose a port above 1023 with --listen")
        }
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

/// Serves metrics and pages to the clients that `web` admits until `shutdown` completes, and returns at most 1 s later.
/// On an address that other hosts reach, `open_requests` says whether clients with neither a password nor a certificate
/// may have records and profiles made.
pub async fn serve(
    listener: TcpListener,
    shared: Shared,
    web: Web,
    open_requests: bool,
    shutdown: impl Future<Output = ()>,
) {
    let address = listener.local_addr();
    let is_loopback = address.is_ok_and(|address| address.ip().is_loopback());
    let router = router(shared, Requesters { web: web.clone(), all: open_requests || is_loopback });
    Connections::new(web, router, PATIENCE).serve(listener, shutdown).await;
}
