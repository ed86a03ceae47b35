//! Agrees with a client on TLS, where the web configuration says so at that moment.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::config::Web;

/// A connection on which HTTP is spoken.
pub type Connection = Either<TcpStream, TlsStream<TcpStream>>;

impl Web {
    /// Agrees with a client on how its connection is protected. This takes as long as the client likes.
    ///
    /// # Errors
    ///
    /// Says why there is no TLS with this client, which is the client's business.
    pub async fn agree(&self, stream: TcpStream) -> io::Result<Connection> {
        let tls = self.now().tls.clone();
        match tls {
            None => Ok(Either::Left(stream)),
            Some(tls) => tls.accept(stream).await.map(Either::Right),
        }
    }
}
