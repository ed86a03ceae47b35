//! Tests each limit with real sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use axum::Router;
use axum::routing::get;
use evictscope_testkit::wait::until;
use rcgen::{CertificateParams, KeyPair};
use tokio::sync::watch;

use super::{Clock, Connections, Limits, Turn, Whose, runs_out};
use crate::http::bind;
use crate::{Web, WebConfig};

const FIRST: Duration = Duration::from_millis(300);
/// Long beside the other, so that a busy machine does not make a pause of the one a pause of this.
const NEXT: Duration = Duration::from_secs(3);
const LIMITS: Limits = Limits {
    most: 4,
    first_request: FIRST,
    next_request: NEXT,
    spared: Duration::from_millis(20),
    pause: Duration::from_millis(100),
};
/// In this time others come and go.
const LATE: Duration = Duration::from_millis(500);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
/// More than the kernel buffers.
const LARGE: usize = 64 << 20;

async fn start(web: Web) -> anyhow::Result<SocketAddr> {
    start_with(web, LIMITS).await
}

/// Starts a server that closes connections only to make room.
async fn start_patient() -> anyhow::Result<SocketAddr> {
    let limits = Limits {
        first_request: Duration::from_secs(60),
        next_request: Duration::from_secs(60),
        ..LIMITS
    };
    start_with(Web::open(), limits).await
}

async fn start_with(web: Web, limits: Limits) -> anyhow::Result<SocketAddr> {
    let listener = bind("127.0.0.1:0".parse()?).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/", get("answer"))
        .route("/large", get(|| async { vec![b'x'; LARGE] }));
    let connections = Connections::new(web, router, limits);
    tokio::spawn(connections.serve(listener, std::future::pending()));
    Ok(address)
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(100 * NEXT))?;
    Ok(stream)
}

/// Asks, and reads until the answer is there.
fn ask(stream: &mut TcpStream) -> anyhow::Result<()> {
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nanswer") {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer)?;
        ensure!(length > 0, "closed");
        answer.extend_from_slice(&buffer[..length]);
    }
    Ok(())
}

/// Reads until the server closes; returns how much that was.
fn drain(mut stream: &TcpStream) -> anyhow::Result<usize> {
    let (mut total, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(length) => total += length,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(total),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the server closes, which must not be before `limit` after `since`.
fn must_close(stream: &TcpStream, since: Instant, limit: Duration) -> anyhow::Result<()> {
    drain(stream)?;
    let after = since.elapsed();
    ensure!(after >= limit, "after {after:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_sends_no_whole_header_is_closed() -> anyhow::Result<()> {
    let address = start(Web::open()).await?;
    for begun in [&b""[..], b"GET / HTTP/1.1\r\nHost: te"] {
        let since = Instant::now();
        let mut stream = connect(address)?;
        stream.write_all(begun)?;
        must_close(&stream, since, FIRST)?;
    }
    // Bytes that drip gain no time.
    let since = Instant::now();
    let mut stream = connect(address)?;
    for byte in REQUEST.iter().take(5) {
        // It may be closed already, if this thread was kept waiting.
        _ = stream.write_all(&[*byte]);
        sleep(FIRST / 6);
    }
    must_close(&stream, since, FIRST)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_connection_is_kept_for_a_while() -> anyhow::Result<()> {
    let address = start(Web::open()).await?;
    let mut stream = connect(address)?;
    let mut since = Instant::now();
    for _ in 0..3 {
        since = Instant::now();
        ask(&mut stream)?;
        // It is longer than the time for the first request.
        sleep(2 * FIRST);
    }
    must_close(&stream, since, NEXT)
}

#[tokio::test]
async fn a_request_that_comes_before_anybody_looks_counts() {
    let begun = Instant::now();
    let turn = |limit| Turn::of(Whose::Client, limit);
    let clock = Clock::new(watch::Sender::new(turn(FIRST)));
    clock.send_replace(turn(NEXT));
    runs_out(&clock).await;
    assert!(begun.elapsed() >= NEXT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_does_not_read_its_answer_is_closed() -> anyhow::Result<()> {
    let address = start(Web::open()).await?;
    let large = REQUEST.split_at(5);
    let mut stream = connect(address)?;
    stream.write_all(&[large.0, b"large", large.1].concat())?;
    // What it sees itself is only the kernel's full buffer.
    let own = stream.local_addr()?;
    until("the server has closed the connection", || {
        let mut open = procfs::net::tcp()?.into_iter();
        let is_open = |entry: procfs::net::TcpNetEntry| {
            entry.remote_address == own && entry.state == procfs::net::TcpState::Established
        };
        Ok((!open.any(is_open)).then_some(()))
    })?;
    let got = drain(&stream)?;
    ensure!(got > 0 && got < LARGE, "{got} bytes");

    // One that does read it gets it all.
    let mut stream = connect(address)?;
    stream.write_all(&[large.0, b"large", large.1].concat())?;
    let got = drain(&stream)?;
    ensure!(got > LARGE, "{got} bytes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_does_not_agree_on_tls_is_closed() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name| directory.path().join(name);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    std::fs::write(path("server.crt"), certificate.pem())?;
    std::fs::write(path("server.key"), key.serialize_pem())?;
    let text = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
    std::fs::write(path("web.yml"), text)?;
    let address = start(WebConfig::load(&path("web.yml"))?.web()).await?;
    // Nothing, and the beginning of a handshake.
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let since = Instant::now();
        let mut stream = connect(address)?;
        stream.write_all(begun)?;
        must_close(&stream, since, FIRST)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn silent_clients_make_room_for_one_who_asks() -> anyhow::Result<()> {
    let address = start_patient().await?;
    let silent: Result<Vec<_>, _> = (0..50).map(|_| connect(address)).collect();
    let silent = silent?;
    ask(&mut connect(address)?)?;
    let open = |stream: &TcpStream| {
        stream.set_nonblocking(true)?;
        let read = (&*stream).read(&mut [0]);
        anyhow::Ok(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
    };
    let kept: Result<Vec<_>, _> = silent.iter().map(open).collect();
    let kept = kept?;
    // The scraper has been closed by its own side or is still one of the four.
    let newest = kept.iter().rev().take_while(|open| **open).count();
    let all = kept.iter().filter(|open| **open).count();
    ensure!(newest == all && (3..=4).contains(&all), "{kept:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_who_is_slow_to_ask_is_closed_after_all_who_are_silent() -> anyhow::Result<()> {
    let address = start_patient().await?;
    let mut slow = connect(address)?;
    let (begin, end) = REQUEST.split_at(5);
    slow.write_all(begin)?;
    let silent: Result<Vec<_>, _> = (0..20).map(|_| connect(address)).collect();
    let silent = silent?;
    sleep(LATE);
    for stream in &silent[..17] {
        drain(stream)?;
    }
    slow.write_all(end)?;
    let mut answer = [0; 8];
    slow.read_exact(&mut answer)?;
    ensure!(answer == *b"HTTP/1.1", "{answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_one_who_asked_last_is_the_last_to_make_room() -> anyhow::Result<()> {
    let address = start_patient().await?;
    let mut scraper = connect(address)?;
    ask(&mut scraper)?;
    let silent: Result<Vec<_>, _> = (0..3).map(|_| connect(address)).collect();
    let silent = silent?;
    sleep(LATE);
    ask(&mut scraper)?;
    let _more: Result<Vec<_>, _> = (0..3).map(|_| connect(address)).collect();
    sleep(LATE);
    for stream in &silent {
        drain(stream)?;
    }
    ask(&mut scraper)
}
