//! What the service manager is told, where one started this process: systemd's protocol, a datagram
//! to the socket that `NOTIFY_SOCKET` names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sd_notify::NotifyState;

use crate::export::Shared;

/// Signs of life in each of the watchdog's periods.
const SIGNS: u32 = 4;

/// How far the watcher has come. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// One more turn of its loop has come to its end.
    pub fn turn(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reports when the agent is ready, as `/-/ready` does, and from then on gives signs of life for as
/// long as the watcher gets on: not where it hangs, nor where the thread that serves HTTP does,
/// which has to run this.
pub async fn report(shared: Shared, progress: Progress) {
    shared.ready().await;
    tell(&[NotifyState::Ready]);
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut seen = progress.turns();
    let mut look = tokio::time::interval(period / SIGNS);
    loop {
        look.tick().await;
        let turns = progress.turns();
        if turns != seen {
            seen = turns;
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Reports that the agent ends because it was asked to.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    // Nothing else depends on it: a service manager that misses this does what it finds right.
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot report to the service manager: {error}");
    }
}
