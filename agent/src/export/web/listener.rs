//! Accepts connections, with TLS where the web configuration says so at that moment.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::config::Web;

/// How long a client may take to agree on TLS.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many clients may agree on TLS at once; more wait in the kernel's queue.
const AT_ONCE: usize = 64;

type Connection = Either<TcpStream, TlsStream<TcpStream>>;

/// A listener for axum.
pub struct WebListener {
    listener: TcpListener,
    web: Web,
    /// Clients that are agreeing on TLS, so that no client waits for another.
    agreeing: JoinSet<Option<(Connection, SocketAddr)>>,
}

impl WebListener {
    /// Protects the connections of `listener` as `web` says.
    pub fn new(listener: TcpListener, web: Web) -> Self {
        Self {
            listener,
            web,
            agreeing: JoinSet::new(),
        }
    }
}

impl Listener for WebListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            tokio::select! {
                (stream, address) = Listener::accept(&mut self.listener),
                    if self.agreeing.len() < AT_ONCE =>
                {
                    match &self.web.now().tls {
                        None => return (Either::Left(stream), address),
                        Some(tls) => {
                            self.agreeing.spawn(agree(tls.clone(), stream, address));
                        }
                    }
                }
                Some(agreed) = self.agreeing.join_next() => {
                    if let Ok(Some(connection)) = agreed {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Agrees with a client on TLS; `None` if that fails, which is the client's business.
async fn agree(
    tls: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) -> Option<(Connection, SocketAddr)> {
    match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
        Ok(Ok(stream)) => return Some((Either::Right(stream), address)),
        Ok(Err(error)) => tracing::debug!(%address, %error, "no TLS with this client"),
        Err(_) => tracing::debug!(%address, "this client did not get to TLS in time"),
    }
    None
}
