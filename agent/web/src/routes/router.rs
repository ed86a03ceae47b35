//! Which path has which answer, and who may ask for it.

use axum::routing::{get, post};
use axum::{Router, middleware};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::csrf::CsrfLayer;

use super::app::App;
use super::{burst_list, health, metrics, pages, profile, records, timeline, unwatched};
use crate::http::browsers;
use crate::published::shared::Shared;
use crate::web_config::{Requesters, guard, guard_requests};

/// Returns what answers each path, to those who may ask.
pub(crate) fn router(shared: Shared, requesters: Requesters) -> Router {
    let web = requesters.web.clone();
    // These cost a server something, though they change nothing.
    let costly = Router::new()
        .route("/debug/pprof/profile", get(profile::profile))
        .route("/api/v1/records", post(records::post))
        .route("/server/{name}/record", post(pages::make_record))
        .route_layer(middleware::from_fn(browsers::own_only))
        .route_layer(middleware::from_fn_with_state(requesters, guard_requests));
    let guarded = Router::new()
        .route("/", get(pages::overview))
        .route("/server/{name}", get(pages::server))
        .route("/bursts/{id}", get(pages::record))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/bursts", get(burst_list::bursts))
        .route("/api/v1/records", get(records::list))
        .route("/api/v1/records/{id}", get(records::one))
        .route("/api/v1/timeline", get(timeline::timeline))
        .route("/api/v1/unwatched", get(unwatched::unwatched))
        .route("/heatmap.svg", get(timeline::heat_map))
        .merge(costly)
        .fallback(pages::nothing)
        .layer(middleware::from_fn_with_state(web, guard))
        .layer(CsrfLayer::new().with_rejection_response(|_| browsers::refused()))
        .layer(compression());
    // The clients of these (a load balancer, a service manager) have no password, and learn nothing about any server.
    guarded
        .route("/-/healthy", get(health::healthy))
        .route("/-/ready", get(health::ready))
        .layer(middleware::map_response(browsers::protect))
        .with_state(App::new(shared))
}

/// Compresses answers for clients that accept it, fast: this way the metrics of 64 servers take a millisecond and shrink to a
/// tenth. The level that others choose takes sixteen times as long, and saves a fifth more.
fn compression() -> CompressionLayer<impl Predicate> {
    // A shorter answer fits into a packet as it is, and a profile is compressed already.
    let is_of_use =
        SizeAbove::new(1024).and(NotForContentType::const_new("application/octet-stream"));
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(is_of_use)
}
