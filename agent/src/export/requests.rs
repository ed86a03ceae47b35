//! What those who may ask over HTTP ask of a server's thread: a record, or a profile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::profile::Profile;
use crate::records::RecordId;

/// Most requests that wait for one server.
const WAITING: usize = 8;

/// Something that was asked for, and where the answer goes.
#[derive(Debug)]
pub enum Request {
    /// A record of now: the last minute, and the next half.
    Record(oneshot::Sender<Result<RecordId, String>>),
    /// A profile of the time that follows.
    Profile {
        /// For how long.
        length: Duration,
        /// Samples a second of CPU time.
        hz: u32,
        /// Where it goes, or why there is none.
        answer: oneshot::Sender<Result<Profile, String>>,
    },
}

/// What waits for each server's thread, by label. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<BTreeMap<String, Vec<Request>>>>);

impl Requests {
    /// Asks the thread of a server; `false` where too many requests wait for it.
    pub fn ask(&self, label: &str, request: Request) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = waiting.entry(label.to_owned()).or_default();
        if waiting.len() >= WAITING {
            return false;
        }
        waiting.push(request);
        true
    }

    /// Takes what waits for a server.
    pub fn take(&self, label: &str) -> Vec<Request> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(label).unwrap_or_default()
    }
}
