//! HTTP connections: how many there may be, and how long a client may take.
//!
//! They share descriptors and CPU time with the probes, so clients that hang on must cost next to nothing, and must not
//! keep a scraper out. There is room for 64 connections that have not sent a request yet, and for 64 that have. If
//! there is no room, the connection that has waited longest is closed. So no client that is silent, slow or does not
//! read its answer takes the place of one that asks at once.
//!
//! hyper limits how long a client may take to send a header, and the kernel how long it may leave its answer unread.
//!
//! Deliberately absent: limits per address. Behind a proxy, all clients have the same one.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use lru::LruCache;
use parking_lot::Mutex;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;

use crate::web_config::Web;

/// How long requests under way may take to finish after the server was told to stop; the agent as a whole must end
/// within 2 s.
const GRACE: Duration = Duration::from_secs(1);
/// How long a client may take to agree on TLS, to send a header, and to read the next part of its answer. Scrapers that
/// come every 15 or 30 s keep their connection.
pub(super) const PATIENCE: Duration = Duration::from_secs(45);
/// The most connections of either kind. A host has a few scrapers and some people with a browser, which opens up to
/// six. The rest of the descriptors, 1,024 by default, are for the probes.
const MOST: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// How long a connection is left alone before it may have to make room: several round trips in a data centre. If new
/// clients keep coming, 3,200 a second get their turn: this empties the kernel's full queue (1,024) in a third of a
/// second and leaves most of the CPU alone.
const SPARED: Duration = Duration::from_millis(20);
/// A longer header is refused.
const LONGEST_HEADER: usize = 16 << 10;
/// How long to wait after the kernel failed to accept a connection.
const PAUSE: Duration = Duration::from_secs(1);

pub struct Connections {
    web: Web,
    router: TowerToHyperService<Router>,
    patience: Duration,
    open: Arc<Mutex<Open>>,
    ending: GracefulShutdown,
    refusals: Trouble,
}

/// The open connections. Dropping one closes it.
struct Open {
    last: u64,
    /// Connections that have not sent a request yet, with the time when they came.
    new: LruCache<u64, (Instant, Task)>,
    /// Connections that have, ordered by their last request.
    asked: LruCache<u64, Task>,
    crowd: Trouble,
}

type Task = AbortOnDropHandle<()>;

impl Default for Open {
    fn default() -> Self {
        Self { last: 0, new: LruCache::new(MOST), asked: LruCache::new(MOST), crowd: Trouble::default() }
    }
}

impl Open {
    /// Starts a connection's task, which is told the connection's number.
    fn start<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(u64) -> F) {
        self.last += 1;
        let task = AbortOnDropHandle::new(tokio::spawn(task(self.last)));
        let closed = self.new.push(self.last, (Instant::now(), task));
        self.note(closed.is_some());
    }

    fn asks(&mut self, number: u64) {
        if let Some((_, task)) = self.new.pop(&number) {
            let closed = self.asked.push(number, task);
            self.note(closed.is_some());
        } else {
            self.asked.promote(&number);
        }
    }

    fn note(&mut self, is_closed: bool) {
        if is_closed && self.crowd.begins() {
            tracing::warn!("more than {MOST} HTTP clients hold connections: those that have waited longest are closed");
        }
    }

    fn close(&mut self, number: u64) {
        self.new.pop(&number);
        self.asked.pop(&number);
    }

    /// Closes the connection that must make room first.
    fn close_oldest(&mut self) {
        if self.new.pop_lru().is_none() {
            self.asked.pop_lru();
        }
    }

    /// Returns when another client may come, if there is no room now: no client that has just come is closed for it.
    fn has_room_at(&self) -> Option<Instant> {
        self.new.peek_lru().filter(|_| self.new.len() == MOST.get()).map(|(_, (since, _))| *since + SPARED)
    }
}

impl Connections {
    /// Returns an empty set of connections, which `web` protects and `router` answers.
    pub fn new(web: Web, router: Router, patience: Duration) -> Self {
        Self {
            web,
            router: TowerToHyperService::new(router),
            patience,
            open: Arc::default(),
            ending: GracefulShutdown::new(),
            refusals: Trouble::default(),
        }
    }

    /// Serves the clients of `listener` until `shutdown` completes, and returns at most 1 s later.
    pub async fn serve(mut self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            () = shutdown => {}
            () = self.accept(&listener) => {}
        }
        drop(listener);
        _ = timeout(GRACE, self.ending.shutdown()).await;
        // Drops the connections that did not finish in time.
        *self.open.lock() = Open::default();
    }

    async fn accept(&mut self, listener: &TcpListener) {
        loop {
            let has_room_at = self.open.lock().has_room_at();
            if let Some(at) = has_room_at {
                sleep_until(at).await;
            }
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.open(stream);
                    // If a connection made room, its task ends and frees its descriptor before the next client is
                    // accepted.
                    yield_now().await;
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    if self.refusals.begins() {
                        tracing::warn!(
                            "cannot accept HTTP clients ({error}), and tries again every second; if \
                             the agent may open too few files, raise LimitNOFILE= or `ulimit -n`"
                        );
                    }
                    // A descriptor may be what is missing.
                    self.open.lock().close_oldest();
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn open(&self, stream: TcpStream) {
        let (web, router) = (self.web.clone(), self.router.clone());
        let (patience, ending) = (self.patience, self.ending.watcher());
        let open = &self.open;
        open.lock().start(|number| {
            let open = open.clone();
            async move {
                let asks = || open.lock().asks(number);
                if let Err(why) = answer(stream, &web, router, patience, ending, asks).await {
                    tracing::debug!("an HTTP connection broke: {why:#}");
                }
                open.lock().close(number);
            }
        });
    }
}

/// Answers all requests of a client; calls `asks` at each.
async fn answer(
    stream: TcpStream,
    web: &Web,
    router: TowerToHyperService<Router>,
    patience: Duration,
    ending: Watcher,
    asks: impl Fn(),
) -> anyhow::Result<()> {
    set_tcp_user_timeout(&stream, patience.as_millis().try_into()?)?;
    let stream = match web.tls() {
        None => Either::Left(stream),
        Some(tls) => Either::Right(timeout(patience, tls.accept(stream)).await??),
    };
    let service = service_fn(|request: Request<Incoming>| {
        asks();
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(LONGEST_HEADER)
        .serve_connection(TokioIo::new(stream), service);
    Ok(ending.watch(connection).await?)
}

/// Returns whether accepting failed because this one client has gone.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// How long nothing must go wrong until it is over.
const CALM: Duration = Duration::from_secs(60);

/// Something that may go wrong again and again: when it last did.
#[derive(Debug, Default)]
pub struct Trouble(Option<Instant>);

impl Trouble {
    /// Notes that it has just gone wrong, and returns whether it had not for a minute.
    pub fn begins(&mut self) -> bool {
        let last = self.0.replace(Instant::now());
        last.is_none_or(|last| last.elapsed() > CALM)
    }
}
