//! Tells all threads that the agent is about to end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Whether the agent is about to end. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Tells all threads that wait.
    pub fn set(&self) {
        let (is_set, told) = &*self.0;
        *is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.notify_all();
    }

    /// Waits until `deadline`, or until the agent is about to end; returns whether it is.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let (is_set, told) = &*self.0;
        let is_set = is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = deadline.saturating_duration_since(Instant::now());
        let waited = told.wait_timeout_while(is_set, rest, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
