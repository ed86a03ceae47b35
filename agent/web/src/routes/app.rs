//! What the answers to requests are made from, and what all of them need.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use prometheus::process_collector::ProcessCollector;
use serde::Deserialize;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::exported::ExportedServer;
use crate::shared::{AnswerSender, Request, Shared};

/// How many threads read files and draw at once: a crowd of readers must leave a CPU to the servers' threads.
const THREADS: usize = 2;
/// How many requests may wait at once for answers that take a minute.
const LONG: usize = 8;

/// What answers are made from. Clones share it.
#[derive(Clone)]
pub(super) struct App {
    pub(super) shared: Shared,
    /// The agent's own process_* metrics.
    pub(super) process: Arc<ProcessCollector>,
    threads: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl App {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            process: Arc::new(ProcessCollector::for_self()),
            threads: Arc::new(Semaphore::new(THREADS)),
            long: Arc::new(Semaphore::new(LONG)),
        }
    }

    /// Does slow work (reads files, draws) in another thread, so that no scrape waits for it.
    pub(super) async fn aside<R: IntoResponse>(
        &self,
        work: impl FnOnce(&Shared) -> Result<R, Refusal> + Send + 'static,
    ) -> Response {
        let shared = self.shared.clone();
        // It cannot fail: nobody closes it.
        let turn = self.threads.clone().acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            // Kept until the work is done, even if nobody waits for the answer any longer.
            let _turn = turn;
            work(&shared).into_response()
        });
        done.await.unwrap_or_else(|error| {
            let text = format!("cannot make this page ({error}); please report this\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        })
    }

    /// Asks the thread of a server, and waits for its answer; `done` says what was not done if no answer comes in time.
    pub(super) async fn ask<T>(
        &self,
        label: &str,
        limit: Duration,
        done: &str,
        request: impl FnOnce(AnswerSender<T>) -> Request,
    ) -> Result<T, Refusal> {
        let permit = self.long.try_acquire();
        let (answer, answered) = oneshot::channel();
        if permit.is_err() || !self.shared.requests().ask(label, request(answer)) {
            let text = "too many requests wait for such an answer; try again in a minute\n";
            return Err((StatusCode::TOO_MANY_REQUESTS, text.to_owned()));
        }
        match timeout(limit, answered).await {
            Ok(Ok(answer)) => answer.map_err(|why| unavailable(&why)),
            Ok(Err(_)) => Err(unavailable("the server has ended, or is no longer watched")),
            Err(_) => Err((StatusCode::GATEWAY_TIMEOUT, format!("no {done} in time; the agent's log may say why\n"))),
        }
    }
}

/// The answer to a request that cannot be met, which says why.
pub(super) type Refusal = (StatusCode, String);

/// Which server a request is about.
#[derive(Debug, Deserialize)]
pub(super) struct Which {
    pub(super) server: Option<String>,
}

impl Which {
    /// Returns the server that is asked for, or the only one.
    pub(super) fn of(&self, shared: &Shared) -> Result<Arc<ExportedServer>, Refusal> {
        let servers = shared.servers().unwrap_or_default();
        match (&self.server, &*servers) {
            (Some(label), _) => {
                servers.iter().find(|server| server.label == *label).cloned().ok_or_else(|| no_such_server(label))
            }
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err((StatusCode::BAD_REQUEST, "which server? Append ?server=NAME; / lists them\n".to_owned())),
        }
    }
}

pub(super) fn no_such_server(label: &str) -> Refusal {
    (StatusCode::NOT_FOUND, format!("no server {label} is watched; / lists those that are\n"))
}

pub(super) fn unavailable(why: &str) -> Refusal {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}
