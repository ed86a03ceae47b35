//! The HTTP server.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use evictscope_telemetry::Timeline;
use prometheus::core::Collector as _;
use prometheus::{TEXT_FORMAT, TextEncoder};
use tokio::net::{TcpListener, TcpSocket};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::csrf::CsrfLayer;

use super::app::{App, Refusal, Which};
use super::browsers;
use super::burst_list::BurstList;
use super::connections::{Connections, PATIENCE};
use super::families::{families, loop_last_turn, records, servers_unwatched};
use super::heatmap;
use super::page_routes;
use super::profile_route;
use super::record_routes;
use super::shared::Shared;
use super::timeline::TimelineAnswer;
use super::web_config::{Requesters, Web, guard, guard_requests};

/// Clients that may wait in the kernel until they are accepted. One that comes when the queue is full
/// tries again after a second, so it is to hold a crowd that comes at once.
const QUEUE: u32 = 1024;

/// A loop that has not turned for so long hangs. It turns ten times a second, and no turn takes
/// seconds.
const HANGS: Duration = Duration::from_secs(10);

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
    // The address can be taken again while connections of an agent before are being closed.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// Serves metrics and pages to those whom `web` admits until `shutdown` is done, and returns 1 s after
/// that at the latest. On an address that other hosts reach, `open_requests` says whether those may have records and profiles
/// made who have neither a password nor a certificate.
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

fn router(shared: Shared, requesters: Requesters) -> Router {
    let web = requesters.web.clone();
    // These cost a server something, though they change nothing.
    let costly = Router::new()
        .route("/debug/pprof/profile", get(profile_route::profile))
        .route("/api/v1/records", post(record_routes::post))
        .route("/server/{name}/record", post(page_routes::make_record))
        .route_layer(middleware::from_fn(browsers::own_only))
        .route_layer(middleware::from_fn_with_state(requesters, guard_requests));
    let guarded = Router::new()
        .route("/", get(page_routes::overview))
        .route("/server/{name}", get(page_routes::server))
        .route("/bursts/{id}", get(page_routes::record))
        .route("/metrics", get(metrics))
        .route("/api/v1/bursts", get(bursts))
        .route("/api/v1/records", get(record_routes::list))
        .route("/api/v1/records/{id}", get(record_routes::one))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/unwatched", get(unwatched))
        .route("/heatmap.svg", get(heat_map))
        .merge(costly)
        .fallback(page_routes::nothing)
        .layer(middleware::from_fn_with_state(web, guard))
        .layer(CsrfLayer::new().with_rejection_response(|_| browsers::refused()))
        .layer(compression());
    // Those who ask these (a load balancer, a service manager) have no password, and learn nothing
    // about any server.
    guarded
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .layer(middleware::map_response(browsers::protect))
        .with_state(App::new(shared))
}

/// Compresses answers for those who accept it, fast: the metrics of 64 servers take a millisecond so, and are a tenth as long;
/// the level that others choose takes sixteen times as long, and saves a fifth more.
fn compression() -> CompressionLayer<impl Predicate> {
    // A shorter answer fits into a packet as it is, and a profile is compressed already.
    let is_of_use =
        SizeAbove::new(1024).and(NotForContentType::const_new("application/octet-stream"));
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(is_of_use)
}

async fn metrics(State(app): State<App>) -> Response {
    let mut all = families(app.shared.servers().as_deref().unwrap_or_default());
    let unwatched = app.shared.unwatched();
    all.extend(unwatched.as_deref().map(servers_unwatched));
    all.extend(app.shared.last_turn().map(loop_last_turn));
    if let Ok(keeper) = app.shared.keeper() {
        all.extend(records(keeper.counts()));
    }
    all.extend(app.process.collect());
    match TextEncoder::new().encode_to_string(&all) {
        Ok(text) => {
            let content_type = format!("{TEXT_FORMAT}; charset=utf-8");
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => {
            let text = format!("cannot encode the metrics: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

async fn bursts(State(app): State<App>, Query(which): Query<Which>) -> Result<Response, Refusal> {
    // Those that have ended were there before.
    let mut servers = app.shared.ended(which.server.as_deref());
    match which.server {
        None => servers.extend(app.shared.servers().unwrap_or_default()),
        Some(_) => match which.of(&app.shared) {
            Ok(server) => servers.push(server),
            Err(why) if servers.is_empty() => return Err(why),
            Err(_) => {}
        },
    }
    Ok(Json(BurstList::of(&servers)).into_response())
}

async fn unwatched(State(app): State<App>) -> impl IntoResponse {
    let unwatched = app.shared.unwatched().unwrap_or_default();
    Json(BTreeMap::from([("unwatched", unwatched)]))
}

async fn timeline(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let (label, timeline) = last_minutes(shared, &which)?;
        Ok(Json(TimelineAnswer::of(&label, &timeline)).into_response())
    })
    .await
}

async fn heat_map(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let (label, timeline) = last_minutes(shared, &which)?;
        let svg = heatmap::svg(&label, &timeline)
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))?;
        Ok(([(header::CONTENT_TYPE, "image/svg+xml")], svg))
    })
    .await
}

/// Returns a copy of the last ten minutes of the server that is asked for: its thread is not to wait for the answer.
fn last_minutes(shared: &Shared, which: &Which) -> Result<(String, Timeline), Refusal> {
    let server = which.of(shared)?;
    let timeline = server.timeline().map(|timeline| timeline.clone());
    let timeline = timeline.ok_or_else(|| {
        let text = "the evicting calls of this server are not seen; / says why\n";
        (StatusCode::NOT_FOUND, text.to_owned())
    })?;
    Ok((server.label.clone(), timeline))
}

async fn healthy(State(app): State<App>) -> (StatusCode, String) {
    health(app.shared.since_last_turn())
}

/// Returns the answer of an agent whose loop last turned that long ago.
fn health(silent: Duration) -> (StatusCode, String) {
    if silent < HANGS {
        return (StatusCode::OK, "healthy\n".to_owned());
    }
    let text = format!(
        "not healthy: the loop that watches the servers has not turned for {} s; \
         restart the agent, and please report this with its log\n",
        silent.as_secs()
    );
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

async fn ready(State(app): State<App>) -> (StatusCode, &'static str) {
    match app.shared.servers() {
        Some(_) => (StatusCode::OK, "ready\n"),
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: still looking for servers and attaching to them\n",
        ),
    }
}
