//! Reports to the service manager that started this process, by systemd's protocol: a datagram to the
//! socket that `NOTIFY_SOCKET` names.

use std::io;
use std::time::Duration;

use evictscope_web::Shared;
use sd_notify::NotifyState;
use tokio::time::timeout;

/// Signs of life in each of the watchdog's periods.
const SIGNS: u32 = 4;

/// A watcher that does not turn for this long hangs: it only looks at processes, which takes milliseconds.
const HUNG: Duration = Duration::from_secs(30);

/// How long to wait at the end for a manager that does not listen.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reports when the agent is ready, as `/-/ready` does, and then gives signs of life while the watcher
/// turns. It runs in the thread that serves HTTP, so they also stop if that thread hangs.
pub async fn report(shared: Shared) {
    shared.ready().await;
    tell(NotifyState::Ready).await;
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut look = tokio::time::interval(period / SIGNS);
    loop {
        look.tick().await;
        if shared.since_last_turn() < period / SIGNS {
            tell(NotifyState::Watchdog).await;
        }
    }
}

/// Returns once the watcher has not turned for so long that it never will.
pub async fn hung(shared: Shared) {
    while shared.since_last_turn() < HUNG {
        tokio::time::sleep(HUNG / SIGNS).await;
    }
}

/// Reports that the agent is about to end.
pub async fn stopping() {
    // The agent ends anyway.
    let _ = timeout(PATIENCE, tell(NotifyState::Stopping)).await;
}

/// Tells the manager in another thread: while it does not read, sending it more blocks.
async fn tell(state: NotifyState<'static>) {
    let told = tokio::task::spawn_blocking(move || sd_notify::notify(&[state])).await;
    // A failure only concerns the service manager, which decides what to do about it.
    if let Err(error) = told.map_err(io::Error::from).flatten() {
        tracing::warn!("cannot report to the service manager: {error}");
    }
}
