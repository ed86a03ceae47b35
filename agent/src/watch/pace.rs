//! When the threads of servers turn: how often each is read, and when the agent is about to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long to wait before trying again to attach to a server.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How often a server is read.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// How often it is read while it evicts, while memory falls after it has, and while a request waits for long.
const OFTEN_INTERVAL: Duration = Duration::from_millis(20);
/// If more servers than this are read so often, each is read less often: 1,600 readings a second take a fifth of a
/// core.
const MOST_OFTEN: usize = 32;

/// How many servers are read often.
#[derive(Clone, Default)]
pub struct Pace(Arc<AtomicUsize>);

/// How often one server is read.
pub struct ServerPace {
    often: Arc<AtomicUsize>,
    is_counted: bool,
}

impl Pace {
    /// Returns the pace of a server that is not read often yet.
    pub fn of_server(&self) -> ServerPace {
        ServerPace { often: self.0.clone(), is_counted: false }
    }
}

impl ServerPace {
    /// Returns how long to wait until the server is read again.
    pub fn interval(&mut self, is_often: bool) -> Duration {
        self.count(is_often);
        if !is_often {
            return INTERVAL;
        }
        let often = self.often.load(Ordering::Relaxed).max(MOST_OFTEN);
        OFTEN_INTERVAL.mul_f64(often as f64 / MOST_OFTEN as f64).min(INTERVAL)
    }

    fn count(&mut self, is_often: bool) {
        match (self.is_counted, is_often) {
            (false, true) => self.often.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.often.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.is_counted = is_often;
    }
}

impl Drop for ServerPace {
    fn drop(&mut self) {
        self.count(false);
    }
}

/// Whether the agent is about to end. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Tells all threads that wait.
    pub fn set(&self) {
        let (is_set, changed) = &*self.0;
        *is_set.lock() = true;
        changed.notify_all();
    }

    /// Waits until `deadline`, or until the agent is about to end; returns whether it is.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let (is_set, changed) = &*self.0;
        let mut is_set = is_set.lock();
        changed.wait_while_until(&mut is_set, |is_set| !*is_set, deadline);
        *is_set
    }
}

#[cfg(test)]
mod tests {
    use super::{Pace, ServerPace};

    #[test]
    fn servers_that_are_read_often_share_the_readings() {
        let pace = Pace::default();
        let all_often = |servers: &mut [ServerPace]| {
            servers.iter_mut().map(|server| server.interval(true)).last().map(|interval| interval.as_millis())
        };
        let mut servers: Vec<_> = (0..256).map(|_| pace.of_server()).collect();
        assert_eq!(all_often(&mut servers[..32]), Some(20));
        assert_eq!(all_often(&mut servers[..64]), Some(40));
        assert_eq!(all_often(&mut servers), Some(100));
        // Servers that end, or are calm again, leave their readings to the others.
        servers.truncate(33);
        assert_eq!(servers[32].interval(false).as_millis(), 100);
        assert_eq!(all_often(&mut servers[..32]), Some(20));
    }
}
