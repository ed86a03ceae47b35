//! A cause, and how much it explains.

use evictscope_telemetry::{CallResult, SlowCall};

use super::account::Account;
use super::window::Window;
use super::{Cause, CauseKind};
use crate::text::bytes;

/// A cause took at least this share of what needed room. What took less explains nothing by itself.
const LEAST_SHARE: f64 = 1.0 / 3.0;
/// Less memory is a few clients' buffers, bytes: they come and go at any time.
pub const LEAST_BYTES: u64 = 1 << 20;

/// How much a cause explains, and the cause.
pub type Finding = (f64, Cause);

pub fn finding(kind: CauseKind, weight: f64, summary: String, evidence: Vec<String>) -> Option<Finding> {
    Some((weight, Cause { kind, summary, evidence }))
}

/// Returns whether a part of memory is worth naming beside everything else that took memory.
pub fn explains(account: &Account, part: u64) -> bool {
    let share = account.total().map(|total| part as f64 / total);
    part >= LEAST_BYTES && share.is_some_and(|share| share >= LEAST_SHARE)
}

/// Says what share that part is.
pub fn share_of(account: &Account, part: u64) -> String {
    let share = account.total().map_or(0.0, |total| part as f64 / total);
    let total = bytes(account.total().unwrap_or(0.0));
    format!("This is {:.0} % of the {total} that needed room or was freed.", 100.0 * share)
}

/// Says how many of the slowest calls stopped at their time limit.
pub fn time_limit(window: &Window<'_>) -> Option<String> {
    let all = window.slowest().count();
    let running = |call: &&SlowCall| call.result == CallResult::Running;
    let running = window.slowest().filter(running).count();
    (running > 0).then(|| {
        format!("Of the {all} slowest evicting calls, {running} stopped at their time limit with memory still over its limit.")
    })
}
