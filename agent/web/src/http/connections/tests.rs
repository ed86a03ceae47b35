//! Tests which connections are closed, and when, with real sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::ensure;
use axum::Router;
use axum::routing::get;
use evictscope_testkit::wait::until;

use super::{CALM, Connections, MOST, Trouble};
use crate::http::bind;
use crate::web_config::tests::{TLS, directory};
use crate::{Web, WebConfig};

/// Only something that hangs takes this long.
const HANG: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(300);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HALF: &[u8] = b"GET / HTTP/1.1\r\nHost: loc";
/// More than the kernel buffers.
const LARGE: usize = 64 << 20;

async fn start(web: Web, patience: Duration) -> anyhow::Result<SocketAddr> {
    let listener = bind("127.0.0.1:0".parse()?).await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/", get("answer")).route("/large", get(|| async { vec![b'x'; LARGE] }));
    let connections = Connections::new(web, router, patience);
    tokio::spawn(connections.serve(listener, std::future::pending()));
    Ok(address)
}

fn open() -> Web {
    Web::open(Vec::new())
}

fn connect(address: SocketAddr, sent: &[u8]) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.write_all(sent)?;
    Ok(stream)
}

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

/// Reads until the server closes the connection; returns the number of bytes.
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

/// Waits until the first clients are closed, so that `most` are left, which must then be open.
fn must_leave(clients: &[TcpStream], most: usize) -> anyhow::Result<()> {
    let (closed, open) = clients.split_at(clients.len() - most);
    for stream in closed {
        drain(stream)?;
    }
    for mut stream in open {
        stream.set_nonblocking(true)?;
        let read = stream.read(&mut [0]);
        ensure!(matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock), "{read:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_sends_no_whole_header_in_time_is_closed() -> anyhow::Result<()> {
    let directory = directory()?;
    let file = directory.path().join("web.yml");
    std::fs::write(&file, TLS)?;
    let http = start(open(), SHORT).await?;
    let https = start(WebConfig::load(&file)?.web(), SHORT).await?;
    let handshake = b"\x16\x03\x01\x02\x00\x01";
    for (address, begun) in [(http, &b""[..]), (http, HALF), (https, b""), (https, handshake)] {
        let since = Instant::now();
        drain(&connect(address, begun)?)?;
        ensure!(since.elapsed() >= SHORT, "{begun:?}");
    }
    // Neither dripping bytes nor an earlier request gains time.
    for begun in [&b""[..], REQUEST] {
        let mut stream = connect(http, begun)?;
        until("it is closed", || {
            std::thread::sleep(SHORT / 6);
            Ok(stream.write_all(b"x").is_err().then_some(()))
        })?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_does_not_read_its_answer_is_closed() -> anyhow::Result<()> {
    let address = start(open(), SHORT).await?;
    let large = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let stream = connect(address, large)?;
    // The client itself sees only the kernel's full buffer.
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

    // A client that reads it gets all of it.
    let got = drain(&connect(address, large)?)?;
    ensure!(got > LARGE, "{got} bytes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn those_who_send_nothing_or_half_a_header_make_room() -> anyhow::Result<()> {
    let address = start(open(), HANG).await?;
    let mut scraper = connect(address, b"")?;
    ask(&mut scraper)?;
    let begun = [&b""[..], HALF].into_iter().cycle().take(4 * MOST.get());
    let clients: anyhow::Result<Vec<_>> = begun.map(|sent| connect(address, sent)).collect();
    must_leave(&clients?, MOST.get())?;
    ask(&mut scraper)?;
    ask(&mut connect(address, b"")?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn those_who_asked_last_are_the_last_to_make_room() -> anyhow::Result<()> {
    let address = start(open(), HANG).await?;
    let mut scraper = connect(address, b"")?;
    let mut clients = Vec::new();
    for _ in 0..2 * MOST.get() {
        ask(&mut scraper)?;
        let mut client = connect(address, b"")?;
        ask(&mut client)?;
        clients.push(client);
    }
    ask(&mut scraper)?;
    must_leave(&clients, MOST.get() - 1)
}

#[test]
fn it_begins_once_and_again_after_a_minute_of_calm() {
    let mut trouble = Trouble::default();
    assert!(trouble.begins());
    assert!(!trouble.begins());
    trouble.0 = tokio::time::Instant::now().checked_sub(2 * CALM);
    assert!(trouble.begins());
}
