//! Reports to the service manager that started this process, by systemd's protocol: a datagram to the
//! socket that `NOTIFY_SOCKET` names.

use std::io;
use std::time::Duration;

use evictscope_host::Scheduling;
use evictscope_web::Shared;
use sd_notify::NotifyState;
use tokio::time::timeout;

/// Signs of life in each of the watchdog's periods.
const SIGNS: u32 = 4;

/// A watcher that has not turned in so many [`TICK`]s hangs: it only looks at processes, which takes milliseconds.
const HUNG: u32 = 30;
/// How often to look whether it turns. While the agent is stopped, no ticks pass.
const TICK: Duration = Duration::from_secs(1);

/// How long to wait at the end for a manager that does not listen.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reports when the agent is ready, as `/-/ready` does, and then gives signs of life while the watcher
/// turns. It runs in the thread that serves HTTP, so they also stop if that thread hangs.
pub async fn report(shared: Shared) {
    shared.ready().await;
    tell(NotifyState::Ready).await;
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut look = tokio::time::interval(period / SIGNS);
    loop {
        look.tick().await;
        if shared.since_last_turn() < period / SIGNS {
            tell(NotifyState::Watchdog).await;
        }
    }
}

/// Returns once the watcher has not turned for so long that it never will. `watcher` are its times.
pub async fn hung(shared: Shared, watcher: Option<Scheduling>) {
    let times = || watcher.as_ref().and_then(Scheduling::times_ns);
    let (mut silent, mut before) = (0, times());
    while silent < HUNG {
        tokio::time::sleep(TICK).await;
        let now = times();
        if shared.since_last_turn() < TICK {
            silent = 0;
        } else if !lacked_cpu(watcher.as_ref(), before, now) {
            silent += 1;
        }
        before = now;
    }
}

/// Returns whether a thread has waited for a CPU since its times were read `before`, because of others or a quota, and
/// so could not run.
fn lacked_cpu(thread: Option<&Scheduling>, before: Option<(u64, u64)>, now: Option<(u64, u64)>) -> bool {
    let Some(((ran_before, waited_before), (ran, waited))) = before.zip(now) else { return false };
    let half = TICK.as_nanos() as u64 / 2;
    // A wait is counted once it is over; until then the thread is ready to run.
    let is_ready = thread.and_then(|thread| thread.slept(TICK)) == Some(Duration::ZERO);
    ran - ran_before < half && (waited - waited_before >= half || is_ready)
}

pub async fn stopping() {
    // The agent ends anyway.
    let _ = timeout(PATIENCE, tell(NotifyState::Stopping)).await;
}

/// Tells the manager in another thread: while it does not read, sending it more blocks.
async fn tell(state: NotifyState<'static>) {
    let notified = tokio::task::spawn_blocking(move || sd_notify::notify(&[state])).await;
    // A failure only concerns the service manager, which decides what to do about it.
    if let Err(error) = notified.map_err(io::Error::from).flatten() {
        tracing::warn!("cannot report to the service manager: {error}");
    }
}
