//! The HTTP server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use evictscope_telemetry::Timeline;
use prometheus::core::Collector as _;
use prometheus::{TEXT_FORMAT, TextEncoder};
use tokio::net::{TcpListener, TcpSocket};

use super::app::{App, Which, no_such_server};
use super::browsers;
use super::burst_list::BurstList;
use super::catalogue::{families, loop_last_turn, records, servers_unwatched};
use super::connections::{Connections, Limits};
use super::gzip::compress;
use super::heatmap;
use super::page_routes;
use super::profile_route;
use super::record_routes;
use super::server::{ExportedServer, Shared};
use super::timeline::TimelineAnswer;
use super::unwatched::UnwatchedList;
use super::web_config::{Web, guard};

/// Clients that may wait in the kernel until they are accepted. One that comes when the queue is full
/// tries again after a second, so it is to hold a crowd that comes at once.
const QUEUE: u32 = 1024;

/// A loop that has not turned for so long hangs. It turns ten times a second, and no turn takes
/// seconds.
const HANGS: Duration = Duration::from_secs(10);

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error(
        "{0} is already in use: is another evictscope running? Choose another address with --listen"
    )]
    InUse(SocketAddr),
    /// Ports below 1024 are for root.
    #[error("may not listen on {0}: run as root, or choose a port above 1023 with --listen")]
    Denied(SocketAddr),
    /// The host does not have that address.
    #[error("{0} is not an address of this host: choose another with --listen")]
    NotHere(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {address} ({source}): choose another address with --listen")]
    Io {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Listens on an address, for [`serve`]. Async because a socket needs the runtime.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    listen(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        io::ErrorKind::PermissionDenied => BindError::Denied(address),
        io::ErrorKind::AddrNotAvailable => BindError::NotHere(address),
        _ => BindError::Io { address, source },
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
/// that at the latest.
pub async fn serve(
    listener: TcpListener,
    shared: Shared,
    web: Web,
    shutdown: impl Future<Output = ()>,
) {
    let router = router(shared, web.clone());
    let connections = Connections::new(web, router, Limits::default());
    connections.serve(listener, shutdown).await;
}

fn router(shared: Shared, web: Web) -> Router {
    // Taking a profile costs a server something, though it changes nothing.
    let costly = Router::new()
        .route("/debug/pprof/profile", get(profile_route::profile))
        .layer(middleware::from_fn(browsers::own_only));
    let guarded = Router::new()
        .route("/", get(page_routes::overview))
        .route("/server/{name}", get(page_routes::server))
        .route("/bursts/{id}", get(page_routes::record))
        .route("/metrics", get(metrics))
        .route("/api/v1/bursts", get(bursts))
        .route(
            "/api/v1/records",
            get(record_routes::list).post(record_routes::make),
        )
        .route("/api/v1/records/{id}", get(record_routes::one))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/unwatched", get(unwatched))
        .route("/heatmap.svg", get(heat_map))
        .merge(costly)
        .fallback(page_routes::nothing)
        .layer(middleware::from_fn_with_state(web, guard))
        .layer(middleware::from_fn(compress));
    // Those who ask these (a load balancer, a service manager) have no password, and learn nothing
    // about any server.
    guarded
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .layer(middleware::from_fn(browsers::protect))
        .with_state(App::new(shared))
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

async fn bursts(State(app): State<App>, Query(which): Query<Which>) -> Response {
    let servers = app.shared.servers();
    let servers = servers.as_deref().unwrap_or_default();
    let only = which.server.as_deref();
    if let Some(label) = only
        && !servers.iter().any(|server| server.label == label)
    {
        return no_such_server(label);
    }
    Json(BurstList::of(servers, only)).into_response()
}

async fn timeline(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        of_timeline(shared, &which, |server, timeline| {
            Json(TimelineAnswer::of(&server.label, timeline)).into_response()
        })
    })
    .await
}

async fn unwatched(State(app): State<App>) -> Json<UnwatchedList> {
    let unwatched = app.shared.unwatched().unwrap_or_default();
    Json(UnwatchedList { unwatched })
}

async fn heat_map(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        of_timeline(shared, &which, |server, timeline| {
            match heatmap::svg(&server.label, timeline) {
                Ok(svg) => ([(header::CONTENT_TYPE, "image/svg+xml")], svg).into_response(),
                Err(error) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
                }
            }
        })
    })
    .await
}

/// Answers from a copy of the last ten minutes of the server that is asked for: its thread is not to wait for the answer.
fn of_timeline(
    shared: &Shared,
    which: &Which,
    answer: impl Fn(&ExportedServer, &Timeline) -> Response,
) -> Response {
    let servers = shared.servers().unwrap_or_default();
    let server = match which.of(&servers) {
        Ok(server) => server,
        Err(refusal) => return *refusal,
    };
    let timeline = server.timeline().map(|timeline| timeline.clone());
    match timeline {
        Some(timeline) => answer(server, &timeline),
        None => {
            let text = "the evicting calls of this server are not seen; / says why\n";
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use anyhow::Context as _;
    use axum::http::StatusCode;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::{BindError, HANGS, bind, health, serve};
    use crate::fixture::{busy_server, partial_server};
    use crate::{Shared, Web, WebConfig};

    struct Server {
        address: SocketAddr,
        shared: Shared,
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    async fn start() -> anyhow::Result<Server> {
        start_with(Web::open()).await
    }

    async fn start_with(web: Web) -> anyhow::Result<Server> {
        let listener = bind("127.0.0.1:0".parse()?).await?;
        let address = listener.local_addr()?;
        let shared = Shared::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, shared.clone(), web, shutdown));
        Ok(Server {
            address,
            shared,
            stop,
            task,
        })
    }

    /// Returns the whole answer. Blocks, so the server needs a thread of its own.
    fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        let headers = "Host: test\r\nConnection: close\r\n";
        write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn every_page_answers() -> anyhow::Result<()> {
        let server = start().await?;
        const NOT_READY: &str = "not ready: still looking";
        for (path, status, text) in [
            ("/-/healthy", "200 OK", "healthy"),
            ("/-/ready", "503 Service Unavailable", NOT_READY),
            ("/metrics", "200 OK", "\nevictscope_build_info{"),
            ("/", "200 OK", "Looking for servers"),
            ("/metric", "404 Not Found", "metrics are at /metrics"),
        ] {
            let answer = get(server.address, path)?;
            let first = format!("HTTP/1.1 {status}\r\n");
            assert!(answer.starts_with(&first), "{path}: {answer}");
            assert!(answer.contains(text), "{path}: {answer}");
        }

        server.shared.publish(busy_server());
        server.shared.set_ready();
        for (path, status, text) in [
            ("/-/ready", 200, "ready\n"),
            (
                "/api/v1/bursts?server=6379",
                200,
                "content-type: application/json\r\n",
            ),
            (
                "/api/v1/bursts?server=6379",
                200,
                "\"kind\":\"self_amplifying\"",
            ),
            ("/api/v1/bursts?server=7", 404, "no server 7"),
            ("/api/v1/timeline", 200, "\"bin_seconds\":0.02"),
            (
                "/heatmap.svg?server=6379",
                200,
                "content-type: image/svg+xml\r\n",
            ),
        ] {
            let answer = get(server.address, path)?;
            let first = format!("HTTP/1.1 {status} ");
            assert!(
                answer.starts_with(&first) && answer.contains(text),
                "{path}: {answer}"
            );
        }
        server.shared.publish(partial_server());
        for (query, status) in [
            ("", 400),
            ("?server=7", 404),
            ("?server=/run/%22%3Cb%3E%22.sock", 404),
        ] {
            let answer = get(server.address, &format!("/heatmap.svg{query}"))?;
            let first = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&first), "{answer}");
        }
        let metrics = get(server.address, "/metrics")?;
        assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(metrics.contains("\nevictscope_evicted_keys_total{server=\"6379\"} 20\n"));
        assert!(metrics.contains("\nprocess_resident_memory_bytes "));

        assert!(!metrics.contains("last_turn"), "it has not turned yet");
        server
            .shared
            .turned(Duration::from_millis(1_700_000_000_500));
        let metrics = get(server.address, "/metrics")?;
        let turned = "\nevictscope_loop_last_turn_timestamp_seconds 1700000000.5\n";
        assert!(metrics.contains(turned));

        // The server has ended: its series are gone.
        let ended = busy_server();
        server.shared.withdraw(&ended.label, ended.pid);
        let metrics = get(server.address, "/metrics")?;
        assert!(!metrics.contains("server=\"6379\""));
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn metrics_are_compressed_where_that_is_accepted() -> anyhow::Result<()> {
        let server = start().await?;
        server.shared.publish(busy_server());
        server.shared.set_ready();
        let mut stream = TcpStream::connect(server.address)?;
        let headers = "Host: test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n";
        write!(stream, "GET /metrics HTTP/1.1\r\n{headers}\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let (headers, body) = answer.split_at(end.context("no end of the headers")? + 4);
        let headers = String::from_utf8(headers.to_vec())?;
        assert!(headers.contains("content-encoding: gzip\r\n"), "{headers}");
        let mut text = String::new();
        flate2::read::GzDecoder::new(body).read_to_string(&mut text)?;
        assert!(text.contains("\nevictscope_evicted_keys_total{server=\"6379\"} 20\n"));

        let plain = get(server.address, "/metrics")?;
        assert!(!plain.contains("content-encoding"), "{plain}");
        let vary = |headers: &str| headers.contains("vary: Accept-Encoding\r\n");
        assert!(vary(&headers) && vary(&plain));
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_idle_connection_does_not_delay_the_end() -> anyhow::Result<()> {
        let server = start().await?;
        let mut idle = TcpStream::connect(server.address)?;
        idle.write_all(b"GET /metrics HTTP/1.1\r\n")?;
        get(server.address, "/-/healthy")?;
        assert!(server.stop.send(()).is_ok());
        server.task.await?;
        let again = TcpStream::connect(server.address);
        assert!(again.is_err(), "it still listens");
        Ok(())
    }

    #[test]
    fn a_loop_that_does_not_turn_is_not_healthy() {
        assert_eq!(health(HANGS - Duration::from_millis(1)).0, StatusCode::OK);
        let (status, text) = health(HANGS);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("has not turned for 10 s"), "{text}");
    }

    #[test]
    fn a_turn_counts_from_when_it_was_whatever_the_time_of_day() {
        let shared = Shared::default();
        std::thread::sleep(Duration::from_millis(200));
        let silent = shared.since_last_turn();
        assert!(silent >= Duration::from_millis(200), "{silent:?}");
        // The clock was set back to 1970.
        let before = std::time::Instant::now();
        shared.turned(Duration::ZERO);
        assert!(shared.since_last_turn() <= before.elapsed());
        assert_eq!(shared.last_turn(), Some(Duration::ZERO));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn health_and_readiness_need_no_password() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("web.yml");
        let hash = bcrypt::hash("secret", 4)?;
        std::fs::write(&file, format!("basic_auth_users:\n  alice: {hash}\n"))?;
        let server = start_with(WebConfig::load(&file)?.web()).await?;
        server.shared.set_ready();
        for (path, status) in [
            ("/-/healthy", 200),
            ("/-/ready", 200),
            ("/metrics", 401),
            ("/", 401),
            ("/-/", 401),
            ("/-/healthy/", 401),
        ] {
            let answer = get(server.address, path)?;
            let first = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&first), "{path}: {answer}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_port_in_use_has_an_error_of_its_own() -> anyhow::Result<()> {
        let listener = bind("127.0.0.1:0".parse()?).await?;
        let address = listener.local_addr()?;
        let error = bind(address).await.map(|_| ());
        let is_in_use = matches!(error, Err(BindError::InUse(in_use)) if in_use == address);
        assert!(is_in_use, "{error:?}");
        let error = bind("192.0.2.1:9739".parse()?).await.map(|_| ());
        assert!(matches!(error, Err(BindError::NotHere(_))), "{error:?}");
        Ok(())
    }
}
