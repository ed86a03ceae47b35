//! HTTP's connections: how many there may be, and how long a client may take.
//!
//! They share descriptors and CPU time with the probes, so clients that hang on must cost next to
//! nothing, and must not keep a scraper out. Each connection has one clock, which starts when the client
//! connects and again with each request: whoever lets it run out is closed, whether it is silent, slow
//! to agree on TLS, idle, or does not read its answer. Above the most connections, the one whose clock
//! has run longest makes room for the newest, of those that have sent nothing if there are any. So a
//! scraper, who asks at once, is answered however many others are silent, and however long it takes to
//! agree on TLS. While an answer is waited for that takes the agent long ([`Patience`]), the clock is not
//! the client's; how many of these there are, `app` limits.
//!
//! Deliberately absent: limits for each address. Behind a proxy all clients have the same one.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::trouble::Trouble;
use super::web_config::Web;

/// How long requests under way may take to finish after the server was told to stop; the agent as
/// a whole is to end within 2 s.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How many connections there may be, and how long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    most: usize,
    /// From when a client connects until the header of its first request is complete, with TLS.
    first_request: Duration,
    /// From a request until the next one. The answer has to be read in this time too.
    next_request: Duration,
    /// How long a connection is left alone before it may have to make room for a newer one.
    spared: Duration,
    /// How long to wait after the kernel could not give a connection.
    pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A host has a few scrapers and some people with a browser, which opens up to six. The
            // probes have the rest of the descriptors, of which there are 1,024 by default.
            most: 64,
            // A scraper sends its header with the first packet, or after two round trips for TLS.
            first_request: Duration::from_secs(10),
            // Scrapers that come every 15 or 30 s keep their connection. A connection a minute costs
            // the others nothing that they would notice.
            next_request: Duration::from_secs(45),
            // Several round trips in a data centre. While new clients come without end, 3,200 a second
            // get their turn, which empties the kernel's full queue (1,024) in a third of a second and
            // leaves most of the CPU alone.
            spared: Duration::from_millis(20),
            pause: Duration::from_secs(1),
        }
    }
}

/// The open connections.
pub struct Connections {
    web: Web,
    router: TowerToHyperService<Router>,
    limits: Limits,
    open: Vec<Open>,
    ending: GracefulShutdown,
    crowd: Trouble,
    refusals: Trouble,
}

/// A connection. It is closed when this is dropped.
struct Open {
    task: JoinHandle<()>,
    clock: Clock,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection's clock, which starts again with each request.
type Clock = Arc<watch::Sender<Turn>>;

/// The time to send a request, to make an answer, or to read it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    since: Instant,
    /// How long it may take.
    limit: Duration,
    whose: Whose,
}

/// Whose turn it is. Connections make room for others in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// That of a client that has sent nothing yet.
    Silent,
    /// That of a client that has.
    Client,
    /// The agent's.
    Agent,
}

impl Turn {
    /// Returns a turn that begins now.
    fn of(whose: Whose, limit: Duration) -> Self {
        Self {
            since: Instant::now(),
            limit,
            whose,
        }
    }
}

/// What a request gets to make a long answer with.
#[derive(Clone, Debug)]
pub struct Patience {
    clock: Clock,
    /// For the client to read the answer and to ask again.
    next_request: Duration,
}

/// The agent takes its time, until this is dropped.
#[derive(Debug)]
pub struct Waiting(Patience);

impl Patience {
    /// Gives the agent this long to make an answer. The client's clock starts again when the result is dropped.
    pub fn wait(&self, limit: Duration) -> Waiting {
        let limit = limit + self.next_request;
        self.clock.send_replace(Turn::of(Whose::Agent, limit));
        Waiting(self.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Patience {
            clock,
            next_request,
        } = &self.0;
        clock.send_replace(Turn::of(Whose::Client, *next_request));
    }
}

impl Connections {
    /// Returns no connections, to be protected by `web` and answered by `router`.
    pub fn new(web: Web, router: Router, limits: Limits) -> Self {
        Self {
            web,
            router: TowerToHyperService::new(router),
            limits,
            open: Vec::new(),
            ending: GracefulShutdown::new(),
            crowd: Trouble::default(),
            refusals: Trouble::default(),
        }
    }

    /// Serves the clients of `listener` until `shutdown` is done, and returns 1 s after that at the
    /// latest.
    pub async fn serve(mut self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            () = shutdown => {}
            () = self.accept(&listener) => {}
        }
        drop(listener);
        // Those that are not done in time are closed with `self.open`.
        _ = timeout(GRACE, self.ending.shutdown()).await;
    }

    /// Accepts clients for ever.
    async fn accept(&mut self, listener: &TcpListener) {
        let most = self.limits.most;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.crowd.ends() => {
                    tracing::info!("{most} HTTP connections are enough again");
                    continue;
                }
                () = self.refusals.ends() => {
                    tracing::info!("HTTP clients are accepted again");
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    self.open(stream);
                    self.make_room().await;
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    if self.refusals.begins() {
                        tracing::warn!(
                            "cannot accept HTTP clients ({error}), and tries again every second; if \
                             the agent may open too few files, raise LimitNOFILE= or `ulimit -n`"
                        );
                    }
                    // It may be the descriptor that is missing.
                    self.close_oldest();
                    sleep(self.limits.pause).await;
                }
            }
        }
    }

    fn open(&mut self, stream: TcpStream) {
        let next_request = self.limits.next_request;
        let turn = Turn::of(Whose::Silent, self.limits.first_request);
        let clock = Clock::new(watch::Sender::new(turn));
        let watched = clock.clone();
        let (web, router) = (self.web.clone(), self.router.clone());
        let ending = self.ending.watcher();
        let patience = Patience {
            clock: clock.clone(),
            next_request,
        };
        let task = tokio::spawn(async move {
            let answering = answer(stream, &web, router, &patience, ending);
            tokio::select! {
                () = answering => {}
                () = runs_out(&watched) => tracing::debug!("an HTTP client took too long"),
            }
        });
        self.open.push(Open { task, clock });
    }

    /// Closes connections until there are no more than there may be.
    async fn make_room(&mut self) {
        while !self.has_room() {
            if let Some(oldest) = self.oldest() {
                let since = self.open[oldest].clock.borrow().since;
                sleep_until(since + self.limits.spared).await;
            }
            if self.has_room() {
                return;
            }
            if self.crowd.begins() {
                tracing::warn!(
                    "more than {} HTTP clients hold connections: the newest are served, and those that \
                     have waited longest are closed",
                    self.limits.most
                );
            }
            // Another one may be the oldest now.
            self.close_oldest();
            // Its task ends, and with it the descriptor, before the next client is accepted.
            yield_now().await;
        }
    }

    fn has_room(&mut self) -> bool {
        self.open.retain(|open| !open.task.is_finished());
        self.open.len() <= self.limits.most
    }

    fn close_oldest(&mut self) {
        if let Some(oldest) = self.oldest() {
            self.open.swap_remove(oldest);
        }
    }

    /// Returns the connection that makes room first.
    fn oldest(&self) -> Option<usize> {
        (0..self.open.len()).min_by_key(|index| {
            let turn = self.open[*index].clock.borrow();
            (turn.whose, turn.since)
        })
    }
}

/// Answers all requests of a client, whose clock starts again at the beginning of each.
async fn answer(
    stream: TcpStream,
    web: &Web,
    router: TowerToHyperService<Router>,
    patience: &Patience,
    ending: Watcher,
) {
    if let Err(error) = stream.peek(&mut [0]).await {
        return tracing::debug!(%error, "this client has gone");
    }
    // Its clock runs on.
    let speaks = |turn: &mut Turn| turn.whose = Whose::Client;
    patience.clock.send_modify(speaks);
    let stream = match web.agree(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "no TLS with this client"),
    };
    let service = service_fn(|mut request: Request<Incoming>| {
        let turn = Turn::of(Whose::Client, patience.next_request);
        patience.clock.send_replace(turn);
        request.extensions_mut().insert(patience.clone());
        router.call(request)
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = ending.watch(connection).await {
        tracing::debug!(%error, "this client's connection broke");
    }
}

/// Waits until the client has taken too long.
async fn runs_out(clock: &Clock) {
    let mut turns = clock.subscribe();
    loop {
        let Turn { since, limit, .. } = *turns.borrow_and_update();
        // It cannot fail for another reason: the sender lives.
        let Ok(_) = timeout_at(since + limit, turns.changed()).await else {
            return;
        };
    }
}

/// Tells whether accepting failed because this one client has gone.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
