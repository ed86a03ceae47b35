//! What permitted HTTP clients ask of a server's thread: a record, or a profile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evictscope_records::RecordId;
use evictscope_records::profile::Profile;
use tokio::sync::oneshot;

/// The most requests that may wait for one server.
const WAITING: usize = 8;

/// Where an answer goes, or the reason why there is none.
pub type Answer<T> = oneshot::Sender<Result<T, String>>;

/// Something that was asked for.
#[derive(Debug)]
pub enum Request {
    /// A record of now: the last minute, and the next half minute.
    Record(Answer<RecordId>),
    /// A profile of the time that follows.
    Profile {
        /// For how long.
        length: Duration,
        /// Samples a second of CPU time.
        hz: u32,
        /// Where it goes.
        answer: Answer<Profile>,
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
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(label).unwrap_or_default()
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
