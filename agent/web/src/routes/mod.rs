//! Which path has which answer, who may ask for it, and what protects people whose browser asks the agent from other
//! pages that are open in it, and from what the answers contain: names and paths that anybody may have chosen.

mod api;
mod app;
mod pages;
mod records;

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use evictscope_model::answers::UnwatchedList;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::csrf::CsrfLayer;

use self::app::App;
use crate::pages::CONTENT_SECURITY_POLICY;
use crate::shared::Shared;
use crate::web_config::{Requesters, guard, guard_requests};

/// Returns what answers each path, to those who may ask.
pub(crate) fn router(shared: Shared, requesters: Requesters) -> Router {
    let web = requesters.web.clone();
    // These cost a server something, though they change nothing.
    let costly = Router::new()
        .route("/debug/pprof/profile", get(records::profile))
        .route("/api/v1/records", post(records::post))
        .route("/server/{name}/record", post(pages::make_record))
        .route_layer(middleware::from_fn(own_only))
        .route_layer(middleware::from_fn_with_state(requesters, guard_requests));
    let guarded = Router::new()
        .route("/", get(pages::overview))
        .route("/server/{name}", get(pages::server))
        .route("/bursts/{id}", get(pages::record))
        .route("/metrics", get(api::metrics))
        .route("/api/v1/bursts", get(api::bursts))
        .route("/api/v1/commands", get(api::commands))
        .route("/api/v1/evidence", get(api::evidence))
        .route("/api/v1/peers", get(api::peers))
        .route("/api/v1/records", get(records::list))
        .route("/api/v1/records/{id}", get(records::one))
        .route("/api/v1/timeline", get(api::timeline))
        .route("/api/v1/unwatched", get(unwatched))
        .route("/heatmap.svg", get(api::heat_map))
        .merge(costly)
        .fallback(pages::nothing)
        .layer(middleware::from_fn_with_state(web, guard))
        .layer(CsrfLayer::new().with_rejection_response(|_| refused()))
        .layer(compression());
    // The clients of these (a load balancer, a service manager) have no password, and learn nothing about any server.
    guarded
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .layer(middleware::map_response(protect))
        .with_state(App::new(shared))
}

/// Compresses answers for clients that accept it, fast: this way the metrics of 64 servers take a millisecond and
/// shrink to a tenth. The level that others choose takes sixteen times as long, and saves a fifth more.
fn compression() -> CompressionLayer<impl Predicate> {
    // A shorter answer fits into a packet as it is, and a profile is compressed already.
    let is_of_use = SizeAbove::new(1024).and(NotForContentType::const_new("application/octet-stream"));
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_of_use)
}

/// A loop that has not turned for this long hangs. It turns ten times a second, and no turn takes seconds.
const HANGS: Duration = Duration::from_secs(10);

async fn healthy(State(app): State<App>) -> (StatusCode, String) {
    health(app.shared.since_last_turn())
}

/// Returns the answer of an agent whose loop last turned `silent` ago.
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
        None => (StatusCode::SERVICE_UNAVAILABLE, "not ready: still looking for servers and attaching to them\n"),
    }
}

async fn unwatched(State(app): State<App>) -> impl IntoResponse {
    Json(UnwatchedList { unwatched: app.shared.unwatched().unwrap_or_default() })
}

/// Tells a server which page a request comes from (Fetch Metadata). Pages cannot forge it. Browsers send it to
/// localhost and over TLS; programs such as curl do not.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Adds the headers that tell browsers to load and run nothing else.
async fn protect(mut response: Response) -> Response {
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
async fn own_only(request: Request, next: Next) -> Response {
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    if request.headers().get_all(FETCH_SITE).iter().all(is_own) { next.run(request).await } else { refused() }
}

fn refused() -> Response {
    (StatusCode::FORBIDDEN, "refused: this request comes from a page of another site\n").into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::StatusCode;

    use super::{HANGS, health};

    #[test]
    fn a_loop_that_does_not_turn_is_not_healthy() {
        assert_eq!(health(HANGS - Duration::from_millis(1)).0, StatusCode::OK);
        let (status, text) = health(HANGS);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("has not turned for 10 s"), "{text}");
    }
}
