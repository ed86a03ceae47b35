//! Tests who gets which answer, with real sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use evictscope_records::Ending;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{bind, serve};
use crate::fixture::{busy_server, partial_server};
use crate::{Shared, Web, WebConfig};

struct Server {
    address: SocketAddr,
    shared: Shared,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

const HOST: &str = "Host: localhost\r\n";
const LOOPBACK: &str = "127.0.0.1:0";

async fn start() -> anyhow::Result<Server> {
    start_on(LOOPBACK, Web::open(Vec::new())).await
}

fn with_password() -> anyhow::Result<Web> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("web.yml");
    let hash = bcrypt::hash("secret", 4)?;
    std::fs::write(&file, format!("basic_auth_users:\n  alice: {hash}\n"))?;
    Ok(WebConfig::load(&file)?.web())
}

/// Fails unless the answer has this status and contains this text.
fn must_answer(address: SocketAddr, what: &str, headers: &str, status: u16, text: &str) -> anyhow::Result<()> {
    let answer = ask(address, what, headers)?;
    let is_right = answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(text);
    ensure!(is_right, "{what} {headers}: {answer}");
    Ok(())
}

async fn start_on(address: &str, web: Web) -> anyhow::Result<Server> {
    let listener = bind(address.parse()?).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr()?.port()));
    let shared = Shared::new(Err("records are not kept".to_owned()));
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        _ = stopped.await;
    };
    let task = tokio::spawn(serve(listener, shared.clone(), web, false, shutdown));
    Ok(Server { address, shared, stop, task })
}

/// Returns the whole answer. Blocks, so the server needs a thread of its own.
fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    ask(address, &format!("GET {path}"), HOST)
}

fn ask(address: SocketAddr, what: &str, headers: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "{what} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_page_answers() -> anyhow::Result<()> {
    let server = start().await?;
    let check = |path: &str, status, text| must_answer(server.address, &format!("GET {path}"), HOST, status, text);
    check("/-/healthy", 200, "healthy")?;
    check("/-/ready", 503, "not ready: still looking")?;
    check("/metrics", 200, "\nevictscope_build_info{")?;
    check("/", 200, "Looking for servers")?;
    check("/metric", 404, "metrics are at /metrics")?;

    server.shared.publish(busy_server());
    server.shared.set_ready();
    check("/-/ready", 200, "ready\n")?;
    let bursts = "/api/v1/bursts?server=6379";
    check(bursts, 200, "content-type: application/json\r\n")?;
    check(bursts, 200, "\"kind\":\"self_amplifying\"")?;
    check("/api/v1/bursts?server=7", 404, "no server 7")?;
    check("/api/v1/commands", 404, "the counters of this server's commands are not known")?;
    check("/api/v1/unwatched", 200, "{\"unwatched\":[]}")?;
    check("/api/v1/timeline", 200, "\"bin_seconds\":0.02")?;
    check("/api/v1/evidence", 200, "{\"server\":\"6379\",\"time\":[{\"name\":\"Evictions\",\"then\":0.34")?;
    check("/api/v1/peers", 200, "{\"server\":\"6379\",\"now\":null,\"worst\":[]}")?;
    let svg = "content-type: image/svg+xml\r\n";
    check("/heatmap.svg?server=6379", 200, svg)?;
    server.shared.publish(partial_server());
    check("/heatmap.svg", 400, "which server?")?;
    check("/heatmap.svg?server=7", 404, "no server 7")?;
    check("/heatmap.svg?server=/run/%22%3Cb%3E%22.sock", 404, "are not seen")?;
    let metrics = get(server.address, "/metrics")?;
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(metrics.contains("\nevictscope_evicted_keys_total{server=\"6379\"} 20\n"));
    assert!(metrics.contains("\nprocess_resident_memory_bytes "));

    assert!(!metrics.contains("last_turn"), "it has not turned yet");
    server.shared.turned(Duration::from_millis(1_700_000_000_500));
    let metrics = get(server.address, "/metrics")?;
    assert!(metrics.contains("\nevictscope_loop_last_turn_timestamp_seconds 1700000000.5\n"));

    // The server has ended: its series are gone.
    let ended = server.shared.publish(busy_server());
    let oom = Ending::Oom { of_group: None };
    server.shared.withdraw(&ended, Some((Duration::from_secs(7), oom)));
    let metrics = get(server.address, "/metrics")?;
    let said = "evictscope_server_ended_timestamp_seconds{how=\"oom\",server=\"6379\",status=\"SIGKILL\",\
                container_name=\"redis\",pod_namespace=\"shop\",pod_name=\"cart-0\"} 1700000007";
    assert_eq!(Vec::from_iter(metrics.lines().filter(|line| line.contains("server=\"6379\""))), [said]);
    assert!(metrics.contains("\nevictscope_servers_ended_total{how=\"oom\"} 1\n"));
    assert!(metrics.contains("\nevictscope_servers_ended_total{how=\"signal\"} 0\n"));
    check("/server/6379", 200, "It was killed by the OOM killer, on ")?;
    // Its bursts are not.
    check(bursts, 200, "\"kind\":\"self_amplifying\"")?;
    check("/server/6379", 200, "Its last bursts")?;
    check("/server/6380", 404, "no server 6380")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn metrics_are_compressed_where_that_is_accepted() -> anyhow::Result<()> {
    let server = start().await?;
    server.shared.publish(busy_server());
    server.shared.set_ready();
    let mut stream = TcpStream::connect(server.address)?;
    // An answer over HTTP/1.0 is not in chunks.
    write!(stream, "GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")?;
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
    let vary = |headers: &str| headers.contains("vary: accept-encoding\r\n");
    assert!(vary(&headers) && vary(&plain));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pages_of_other_sites_are_refused() -> anyhow::Result<()> {
    let server = start_on(LOOPBACK, Web::open(vec!["h1".to_owned()])).await?;
    const RECORD: &str = "POST /api/v1/records?server=7";
    const PROFILE: &str = "GET /debug/pprof/profile?server=7";
    // No such server.
    const PASSES: u16 = 404;
    let check = |what: &str, headers: &str, status| {
        must_answer(server.address, what, &format!("Host: {headers}\r\n"), status, "x-frame-options: DENY\r\n")
    };
    check(RECORD, "h1:1", PASSES)?;
    check(RECORD, "h1:1\r\nOrigin: http://h1:1", PASSES)?;
    check(RECORD, "h1:1\r\nSec-Fetch-Site: same-origin", PASSES)?;
    check(RECORD, "h1:1\r\nSec-Fetch-Site: same-site", 403)?;
    check(RECORD, "h1:1\r\nSec-Fetch-Site: cross-site", 403)?;
    check(RECORD, "h1:1\r\nOrigin: http://h1:2", 403)?;
    check(RECORD, "h1:1\r\nOrigin: http://evil.example", 403)?;
    check(RECORD, "h1:1\r\nOrigin: null", 403)?;
    check(PROFILE, "h1:1", PASSES)?;
    check(PROFILE, "h1:1\r\nSec-Fetch-Site: none", PASSES)?;
    check(PROFILE, "h1:1\r\nSec-Fetch-Site: cross-site", 403)?;
    // The other site's name points here.
    check(RECORD, "evil.example\r\nOrigin: http://evil.example", 421)?;
    check(PROFILE, "evil.example\r\nSec-Fetch-Site: same-origin", 421)?;
    check("GET /metrics", "evil.example", 421)?;
    check("GET http://evil.example/metrics", "h1", 421)?;
    check("GET /-/healthy", "evil.example", 200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_other_hosts_ask_servers_work_for_those_with_a_password() -> anyhow::Result<()> {
    const ALICE: &str = "Host: localhost\r\nAuthorization: Basic YWxpY2U6c2VjcmV0\r\n";
    for (web, status) in [(Web::open(Vec::new()), 403), (with_password()?, 404)] {
        let server = start_on("0.0.0.0:0", web).await?;
        for (what, status) in [
            ("POST /api/v1/records?server=7", status),
            ("GET /debug/pprof/profile?server=7", status),
            ("GET /metrics", 200),
        ] {
            must_answer(server.address, what, ALICE, status, "")?;
        }
    }
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
fn a_turn_counts_from_when_it_was_whatever_the_time_of_day() {
    let shared = Shared::new(Err("records are not kept".to_owned()));
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
    let server = start_on(LOOPBACK, with_password()?).await?;
    server.shared.set_ready();
    for (path, status) in
        [("/-/healthy", 200), ("/-/ready", 200), ("/metrics", 401), ("/", 401), ("/-/", 401), ("/-/healthy/", 401)]
    {
        must_answer(server.address, &format!("GET {path}"), HOST, status, "")?;
    }
    Ok(())
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_named() -> anyhow::Result<()> {
    let listener = bind("127.0.0.1:0".parse()?).await?;
    let in_use = listener.local_addr()?;
    let elsewhere = "192.0.2.1:9739".parse()?;
    for (address, why) in [(in_use, "is already in use"), (elsewhere, "is not an address of this host")] {
        let error = bind(address).await.err().context("it listens")?;
        assert!(error.to_string().starts_with(&format!("{address} {why}")), "{error}");
    }
    Ok(())
}
