//! The HTTP server: /metrics, /-/healthy, /-/ready, and the landing page.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder as _, Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::{Shared, families, landing};

/// How long requests that are being answered at the end may still take.
const GRACE: Duration = Duration::from_millis(500);

/// Why the address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody else does.
    #[error(
        "{0} is already in use: is another evictscope running? choose another address with --listen"
    )]
    InUse(SocketAddr),
    /// Ports below 1024 are root's.
    #[error("may not listen on {0}: choose a port above 1023 with --listen, or run as root")]
    Denied(SocketAddr),
    /// No interface has it.
    #[error("{0} is not an address of this host: choose another with --listen")]
    NotHere(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Listens on `address`.
///
/// # Errors
///
/// Where the address is taken, forbidden, or not this host's.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            ErrorKind::AddrInUse => BindError::InUse(address),
            ErrorKind::PermissionDenied => BindError::Denied(address),
            ErrorKind::AddrNotAvailable => BindError::NotHere(address),
            _ => BindError::Io { address, source },
        })
}

/// What the handlers share.
#[derive(Clone)]
struct Exporter {
    shared: Shared,
    /// The agent's own `process_*` metrics.
    own: Arc<Registry>,
}

/// Serves until `shutdown` is there, and requests that are being answered then for half a second more.
///
/// # Errors
///
/// Where the agent's own metrics cannot be registered, or accepting connections fails for good.
pub async fn serve(
    listener: TcpListener,
    shared: Shared,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let own = Registry::new();
    own.register(Box::new(ProcessCollector::for_self()))
        .map_err(io::Error::other)?;
    let exporter = Exporter {
        shared,
        own: Arc::new(own),
    };
    let router = Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(async || "evictscope is healthy\n"))
        .route("/-/ready", get(ready))
        .fallback(async || {
            (
                StatusCode::NOT_FOUND,
                "there is no such page; / lists those there are\n",
            )
        })
        .with_state(exporter);
    let (tell, told) = oneshot::channel();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async {
        shutdown.await;
        // Nobody waits for it where serving has failed already.
        let _ = tell.send(());
    });
    let deadline = async {
        if told.await.is_ok() {
            tokio::time::sleep(GRACE).await;
        }
    };
    tokio::select! {
        served = serving => served,
        () = deadline => Ok(()),
    }
}

async fn index(State(exporter): State<Exporter>) -> Html<String> {
    Html(landing::page(&exporter.shared.servers().unwrap_or_default()).into_string())
}

async fn ready(State(exporter): State<Exporter>) -> (StatusCode, &'static str) {
    match exporter.shared.servers() {
        Some(_) => (StatusCode::OK, "evictscope is ready\n"),
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the first search for servers is not done yet\n",
        ),
    }
}

async fn metrics(State(exporter): State<Exporter>) -> Response {
    let servers = exporter.shared.servers().unwrap_or_default();
    let mut all = families(&servers);
    all.extend(exporter.own.gather());
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&all, &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!("cannot write the metrics as text: {error}");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
        }
    }
}
