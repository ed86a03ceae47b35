//! Whose turn it is to plan. Few processes plan at once; a process that waits for a file system lets another begin.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most processes that plan at once.
const AT_ONCE: usize = 2;
/// The most that wait for a file system besides them.
const MAX_WAITING: usize = 64;
/// How long a process must sleep to count as waiting.
const ASLEEP: Duration = Duration::from_secs(1);

/// How many processes plan, and how many others wait.
struct Count {
    planning: usize,
    waiting: usize,
}

static COUNT: Mutex<Count> = Mutex::new(Count { planning: 0, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

/// The turn of one process, until it is dropped.
pub struct Turn {
    is_waiting: bool,
}

impl Turn {
    /// Waits for a turn.
    pub fn begin() -> Self {
        let count = CHANGED.wait_while(count(), |count| count.planning >= AT_ONCE);
        count.unwrap_or_else(PoisonError::into_inner).planning += 1;
        Self { is_waiting: false }
    }

    /// Lets another process begin if this one has slept for so long that it can only be waiting to read.
    pub fn yield_if_asleep(&mut self, slept: Duration) {
        if self.is_waiting {
            return;
        }
        let mut count = count();
        if slept >= ASLEEP && count.waiting < MAX_WAITING {
            self.is_waiting = true;
            count.planning -= 1;
            count.waiting += 1;
            CHANGED.notify_one();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut count = count();
        if self.is_waiting {
            count.waiting -= 1
        } else {
            count.planning -= 1
        }
        CHANGED.notify_one();
    }
}

/// Locks the numbers, which a panic elsewhere leaves as they were.
fn count() -> MutexGuard<'static, Count> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}
