//! Reports to the service manager that started this process, by systemd's protocol: a datagram to the
//! socket that `NOTIFY_SOCKET` names.

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
    /// Counts one more finished turn of its loop.
    pub fn turn(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reports when the agent is ready, as `/-/ready` does, and then gives signs of life while the watcher
/// makes progress. It runs in the thread that serves HTTP, so they also stop if that thread hangs.
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

/// Reports that the agent is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    // A failure only concerns the service manager, which decides what to do about it.
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot report to the service manager: {error}");
    }
}
