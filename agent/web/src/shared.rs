//! What the run loop hands to the HTTP server, the servers and the time of its last turn, and what permitted HTTP
//! clients ask of a server's thread: a record, or a profile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evictscope_model::answers::UnwatchedServer;
use evictscope_records::profile::Profile;
use evictscope_records::{Ending, Keeper, RecordId};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::exported::ExportedServer;

/// For how long the bursts of a server that has ended can be read.
const ENDED_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// The most ended servers to keep.
const ENDED: usize = 50;

/// What the threads that watch share with the HTTP server: the servers, and when the loop last turned. Clones share the
/// same view; no side waits for another longer than it takes to exchange a pointer.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Published>);

#[derive(Debug)]
struct Published {
    /// By label.
    servers: Mutex<BTreeMap<String, Arc<ExportedServer>>>,
    /// The servers that have ended, the latest first, without their timelines.
    ended: Mutex<VecDeque<Arc<ExportedServer>>>,
    /// How many have ended, by [`Ending::HOW`].
    endings: [AtomicU64; Ending::HOW.len()],
    is_ready: watch::Sender<bool>,
    /// The last turn of the loop: by the monotonic clock, which nobody sets back, and since 1970 (`None` before the
    /// first turn).
    turn: watch::Sender<(Instant, Option<Duration>)>,
    /// What is asked of the servers' threads.
    requests: Requests,
    /// Where records are, or why none are kept.
    keeper: Result<Keeper, String>,
    /// `None` before the first look.
    unwatched: watch::Sender<Option<Vec<UnwatchedServer>>>,
}

impl Shared {
    /// Returns no servers, and a loop that has yet to turn for the first time. `keeper` says where records are, or why
    /// none are kept.
    pub fn new(keeper: Result<Keeper, String>) -> Self {
        Self(Arc::new(Published {
            servers: Mutex::default(),
            ended: Mutex::default(),
            endings: Default::default(),
            is_ready: watch::Sender::default(),
            turn: watch::Sender::new((Instant::now(), None)),
            requests: Requests::default(),
            keeper,
            unwatched: watch::Sender::default(),
        }))
    }

    /// Returns what is asked of the servers' threads.
    pub fn requests(&self) -> &Requests {
        &self.0.requests
    }

    /// Returns where records are, or why none are kept.
    pub fn keeper(&self) -> Result<&Keeper, &str> {
        self.0.keeper.as_ref().map_err(String::as_str)
    }

    /// Notes that the loop has just turned, `unix_time` after 1970. An agent is healthy while its loop says so every
    /// few seconds.
    pub fn turned(&self, unix_time: Duration) {
        let turn = (Instant::now(), Some(unix_time));
        self.0.turn.send_replace(turn);
    }

    /// Returns how long ago the loop last turned, or this was created if it has not turned yet.
    pub fn since_last_turn(&self) -> Duration {
        self.0.turn.borrow().0.elapsed()
    }

    /// Returns when the loop last turned, since 1970; `None` before the first turn.
    pub(crate) fn last_turn(&self) -> Option<Duration> {
        self.0.turn.borrow().1
    }

    /// Replaces the list of servers that run here and are not watched.
    pub fn set_unwatched(&self, servers: Vec<UnwatchedServer>) {
        self.0.unwatched.send_replace(Some(servers));
    }

    /// Returns the servers that run here and are not watched; `None` before the first look.
    pub(crate) fn unwatched(&self) -> Option<Vec<UnwatchedServer>> {
        self.0.unwatched.borrow().clone()
    }

    /// Replaces what is published about one server, and returns it.
    pub fn publish(&self, server: ExportedServer) -> Arc<ExportedServer> {
        let server = Arc::new(server);
        self.0.servers.lock().insert(server.label.clone(), server.clone());
        server
    }

    /// Withdraws what is published about a server, unless another server has its label by now: perhaps the same
    /// process, which has executed another program. `ended` says when its process ended, monotonic, and how.
    pub fn withdraw(&self, last: &Arc<ExportedServer>, ended: Option<(Duration, Ending)>) {
        let mut servers = self.0.servers.lock();
        if servers.get(&last.label).is_some_and(|server| Arc::ptr_eq(server, last)) {
            servers.remove(&last.label);
        }
        drop(servers);
        if let Some((_, ending)) = ended {
            self.0.endings[ending.label()].fetch_add(1, Ordering::Relaxed);
        }
        let mut servers = self.0.ended.lock();
        servers.push_front(Arc::new(ExportedServer { timeline: None, ended, ..ExportedServer::clone(last) }));
        servers.truncate(ENDED);
    }

    /// Returns what was last published about the servers that have ended in the last day, the latest first; of one
    /// label, or all.
    pub(crate) fn ended(&self, label: Option<&str>) -> Vec<Arc<ExportedServer>> {
        let mut ended = self.0.ended.lock();
        ended.retain(|server| server.read.elapsed() < ENDED_KEPT);
        ended.iter().filter(|server| label.is_none_or(|label| server.label == label)).cloned().collect()
    }

    pub(crate) fn endings(&self) -> [(&'static str, u64); Ending::HOW.len()] {
        let count = |label: usize| self.0.endings[label].load(Ordering::Relaxed);
        std::array::from_fn(|label| (Ending::HOW[label], count(label)))
    }

    /// Makes the agent ready: it has looked for servers, and has tried to attach to those that it found.
    pub fn set_ready(&self) {
        self.0.is_ready.send_replace(true);
    }

    /// Waits until the agent is ready.
    pub async fn ready(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let mut is_ready = self.0.is_ready.subscribe();
        let _ = is_ready.wait_for(|is_ready| *is_ready).await;
    }

    /// Returns the labels of the servers whose last reading is too old to be exported.
    pub fn stale(&self) -> Vec<String> {
        let servers = self.0.servers.lock();
        servers.values().filter(|server| server.is_stale()).map(|server| server.label.clone()).collect()
    }

    /// Returns the servers by ascending pid; `None` until the agent is ready.
    pub(crate) fn servers(&self) -> Option<Vec<Arc<ExportedServer>>> {
        if !*self.0.is_ready.borrow() {
            return None;
        }
        let servers = self.0.servers.lock();
        let mut fresh: Vec<_> = servers.values().filter(|server| !server.is_stale()).cloned().collect();
        fresh.sort_by_key(|server| server.pid);
        Some(fresh)
    }
}

/// The most requests that may wait for one server.
const WAITING: usize = 8;

/// Where an answer goes, or the reason why there is none.
pub type AnswerSender<T> = oneshot::Sender<Result<T, String>>;

/// Something that was asked for.
#[derive(Debug)]
pub enum Request {
    /// A record of now: the last minute, and the next half minute.
    Record(AnswerSender<RecordId>),
    /// A profile of the time that follows.
    Profile {
        /// For how long.
        length: Duration,
        /// Samples a second of CPU time.
        hz: u32,
        /// Where it goes.
        answer: AnswerSender<Profile>,
    },
}

impl Request {
    /// Returns whether nobody is waiting for the answer any longer.
    pub fn is_given_up(&self) -> bool {
        match self {
            Self::Record(answer) => answer.is_closed(),
            Self::Profile { answer, .. } => answer.is_closed(),
        }
    }
}

/// What waits for each server's thread, by label. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<BTreeMap<String, Vec<Request>>>>);

impl Requests {
    /// Asks the thread of a server. Returns `false` if too many requests wait for it.
    pub fn ask(&self, label: &str, request: Request) -> bool {
        let mut waiting = self.0.lock();
        let waiting = waiting.entry(label.to_owned()).or_default();
        // Their clients have gone, perhaps because the server has.
        waiting.retain(|request| !request.is_given_up());
        if waiting.len() >= WAITING {
            return false;
        }
        waiting.push(request);
        true
    }

    /// Takes the requests that wait for a server.
    pub fn take(&self, label: &str) -> Vec<Request> {
        self.0.lock().remove(label).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::{Request, Requests, WAITING};

    #[test]
    fn no_more_wait_than_may_and_those_who_gave_up_do_not() {
        let requests = Requests::default();
        let mut asked = Vec::new();
        let ask = |asked: &mut Vec<_>| {
            let (answer, answered) = oneshot::channel();
            asked.push(answered);
            requests.ask("6379", Request::Record(answer))
        };
        for _ in 0..WAITING {
            assert!(ask(&mut asked));
        }
        assert!(!ask(&mut asked), "one too many");
        asked.remove(0);
        assert!(ask(&mut asked), "one has gone");
        assert_eq!(requests.take("6379").len(), WAITING);
        assert!(requests.take("6379").is_empty() && requests.take("6380").is_empty());
    }
}
