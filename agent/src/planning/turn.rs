//! Whose turn it is to plan. Few processes do at once; one that waits for a file system lets another one begin.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most processes that plan at once.
const AT_ONCE: usize = 2;
/// Most that wait for a file system beside them.
const MAX_WAITING: usize = 64;
/// For how long one sleeps until it counts as waiting.
const ASLEEP: Duration = Duration::from_secs(1);

/// How many processes plan, and how many of others wait.
struct Count {
    planning: usize,
    waiting: usize,
}

static COUNT: Mutex<Count> = Mutex::new(Count {
    planning: 0,
    waiting: 0,
});
static CHANGED: Condvar = Condvar::new();

/// The turn of one process, until it is dropped.
pub struct Turn {
    is_waiting: bool,
}

impl Turn {
    /// Waits for it.
    pub fn begin() -> Self {
        let count = CHANGED.wait_while(count(), |count| count.planning >= AT_ONCE);
        count.unwrap_or_else(PoisonError::into_inner).planning += 1;
        Self { is_waiting: false }
    }

    /// Lets another one begin if the process whose turn it is has slept for so long that it has nothing to do but to read.
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
        match self.is_waiting {
            true => count.waiting -= 1,
            false => count.planning -= 1,
        }
        CHANGED.notify_one();
    }
}

/// Locks the numbers, which a panic elsewhere leaves as they were.
fn count() -> MutexGuard<'static, Count> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}
