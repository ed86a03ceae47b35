//! All agents of a fleet, in one HTTP server: each has a path of its own.

use std::{
    future::IntoFuture as _,
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{PACE, rules::Families, template::Template};
use crate::exporters::Exporter;

/// How long the real agent's answer serves: the answers to scrapes of one target are never from the same one.
const FRESH: Duration = Duration::from_secs(1);
/// How many scrapes lie before the first: nearly an hour. Prometheus takes nothing that is more than an hour older than
/// its newest sample.
pub const PAST: u32 = 236;
const TEXT: &str = "text/plain; version=0.0.4";

/// The HTTP server, which ends when this is dropped.
pub struct Targets {
    port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    agent: Exporter,
    read: Families,
    state: Mutex<Answered>,
}

#[derive(Default)]
struct Answered {
    /// The real agent's last answer.
    last: Option<(Instant, Arc<Template>)>,
    /// How often each target was scraped.
    scrapes: Vec<u32>,
}

impl Targets {
    /// Listens on a loopback port, and asks this agent for what it answers. The first answer of each target is nearly an
    /// hour of the past of all families that the rules read.
    pub fn start(agent: Exporter, read: Families) -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a loopback port")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            agent,
            read,
            state: Mutex::default(),
        });
        let routes = Router::new()
            .route("/{target}/metrics", get(answer))
            .with_state(Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start an HTTP server")?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::select! {
                    served = axum::serve(listener, routes).into_future() => served,
                    _ = stopped => Ok(()),
                }
            });
            if let Err(error) = served {
                eprintln!("the targets cannot be served any longer: {error}");
            }
        });
        Ok(Self {
            port,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the first `count` targets, as Prometheus's file discovery reads them.
    pub fn discovery(&self, count: usize) -> Value {
        let target = |number| {
            json!({
                "targets": [format!("127.0.0.1:{}", self.port)],
                "labels": {
                    "__metrics_path__": format!("/{number}/metrics"),
                    "instance": format!("host-{number}:9739"),
                },
            })
        };
        (0..count).map(target).collect()
    }

    /// Returns how many targets have been scraped.
    pub fn scraped(&self) -> usize {
        let state = self.shared.state();
        let scraped = state.scrapes.iter().filter(|scrapes| **scrapes > 0);
        scraped.count()
    }

    /// Returns how many scrapes there were of all targets.
    pub fn scrapes(&self) -> u32 {
        self.shared.state().scrapes.iter().sum()
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        // Where it has ended, nobody listens.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Answered> {
        // Each change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the real agent says, with the number of scrapes of this target before.
    fn count(&self, target: usize) -> Result<(Arc<Template>, u32)> {
        let mut state = self.state();
        if state.scrapes.len() <= target {
            state.scrapes.resize(target + 1, 0);
        }
        let before = state.scrapes[target];
        state.scrapes[target] += 1;
        let fresh = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        if let Some((_, template)) = fresh {
            return Ok((Arc::clone(template), before));
        }
        let text = self.agent.scrape()?.text()?;
        let template = Arc::new(Template::parse(&text, &self.read)?);
        state.last = Some((Instant::now(), Arc::clone(&template)));
        Ok((template, before))
    }

    fn answer(&self, target: usize) -> Result<Response> {
        let (template, before) = self.count(target)?;
        if before == 0 {
            // Without the present: Prometheus 3 takes no series in one answer both with a time and without.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let text = template.past(target, PAST, PACE, now)?;
            return Ok(([(header::CONTENT_TYPE, TEXT)], text).into_response());
        }
        // As the agent packs it.
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(template.answer(target).as_bytes())?;
        let headers = [
            (header::CONTENT_TYPE, TEXT),
            (header::CONTENT_ENCODING, "gzip"),
        ];
        Ok((headers, packed.finish()?).into_response())
    }
}

/// Answers one scrape. Nothing else goes on in this thread, so that it may wait for the agent.
async fn answer(State(shared): State<Arc<Shared>>, Path(target): Path<usize>) -> Response {
    shared.answer(target).unwrap_or_else(|error| {
        let text = format!("{error:#}\n");
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    })
}
