//! What the answers to requests are made from, and what all of them need.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use prometheus::process_collector::ProcessCollector;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::server::{ExportedServer, Shared};

/// How many threads read files and draw at once: a crowd of readers is to leave the servers' threads a CPU.
const THREADS: usize = 2;
/// How many answers may be waited for at once, of those that take a minute.
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

    /// Does what takes its time (reads files, draws) in another thread, so that no scrape waits for it.
    pub(super) async fn aside(
        &self,
        work: impl FnOnce(&Shared) -> Response + Send + 'static,
    ) -> Response {
        let shared = self.shared.clone();
        // It cannot fail: nobody closes it.
        let turn = self.threads.clone().acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            // Kept until the work is done, also where nobody waits for the answer any more.
            let _turn = turn;
            work(&shared)
        });
        done.await.unwrap_or_else(|error| {
            let text = format!("cannot make this page ({error}); please report this\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        })
    }

    /// Allows one more answer that takes a minute; it is over when the permit is dropped. `None` where too many are waited for.
    pub(super) fn long(&self) -> Option<OwnedSemaphorePermit> {
        self.long.clone().try_acquire_owned().ok()
    }
}

/// The answer to what cannot be done, which says why.
pub(super) type Refusal = Box<Response>;

/// Which server a request is about.
#[derive(Debug, Deserialize)]
pub(super) struct Which {
    pub(super) server: Option<String>,
}

impl Which {
    /// Returns the server that is asked for, or the only one.
    pub(super) fn of<'a>(
        &self,
        servers: &'a [Arc<ExportedServer>],
    ) -> Result<&'a ExportedServer, Refusal> {
        match (&self.server, servers) {
            (Some(label), servers) => servers
                .iter()
                .map(Arc::as_ref)
                .find(|server| server.label == *label)
                .ok_or_else(|| Box::new(no_such_server(label))),
            (None, [only]) => Ok(only),
            (None, _) => {
                let text = "which server? Append ?server=NAME; / lists them\n";
                Err(Box::new((StatusCode::BAD_REQUEST, text).into_response()))
            }
        }
    }
}

/// Answers that this server is not watched.
pub(super) fn no_such_server(label: &str) -> Response {
    let text = format!("no server {label} is watched; / lists those that are\n");
    (StatusCode::NOT_FOUND, text).into_response()
}

/// Answers that too many wait already.
pub(super) fn too_many() -> Response {
    let text = "too many wait for such an answer; try again in a minute\n";
    (StatusCode::TOO_MANY_REQUESTS, text).into_response()
}
