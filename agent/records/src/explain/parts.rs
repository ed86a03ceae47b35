//! Parts of memory that are neither keys nor buffers of clients and replicas: scripts, links of the cluster, the
//! tracking table.
//!
//! They hold memory until somebody frees them, and evictions make room for them as for keys. Only where these are not
//! what grew are writes named.

use evictscope_model::answers::ThenAndNow;
use evictscope_telemetry::MemoryParts;

use super::CauseKind;
use super::account::Account;
use super::finding::{Finding, explains, finding, share_of, time_limit};
use super::growth::Growth;
use super::window::Window;
use crate::evidence::{grew_most, memory};
use crate::text::{bytes, capital, size};

/// Growth by less of all memory is not mentioned, if it is no cause.
const MUCH: f64 = 0.01;

/// Returns those parts that explain why room had to be made.
pub fn found(window: &Window<'_>, account: &Account) -> Vec<Finding> {
    let cause = |&(kind, growth): &(CauseKind, Growth)| {
        let grew = growth.bytes();
        if !window.has_calm() || !explains(account, grew) {
            return None;
        }
        let name = capital(&kind.to_string());
        let mut evidence = vec![share_of(account, grew)];
        if kind == CauseKind::TrackingTable {
            evidence.push("What the tracking table takes is an estimate, from its keys and clients.".to_owned());
        }
        evidence.extend(time_limit(window));
        finding(kind, grew as f64, made_room(window, &name, growth), evidence)
    };
    account.parts.iter().filter_map(cause).collect()
}

/// Says that evictions made room for what grew.
pub fn made_room(window: &Window<'_>, name: &str, growth: Growth) -> String {
    let at_limit = window.limit().map_or_else(String::new, |limit| format!(" at the limit of {}", size(limit)));
    let [grew, from, to] = [growth.bytes(), growth.from, growth.to].map(size);
    format!("{name} grew by {grew}, from {from} to {to}, and evictions had to make room for them{at_limit}")
}

/// Says which part of memory was the largest in the end.
pub fn largest(window: &Window<'_>) -> Option<String> {
    let parts = window.whole.iter().rev().find_map(|moment| moment.memory)?;
    let rows = memory(None, &parts);
    let largest = rows.first()?;
    Some(format!("Most of the {} in use: {}, {}.", size(parts.used), largest.name, bytes(largest.now?)))
}

/// Says which part of memory grew most, if that is worth mentioning.
pub fn grown_most(window: &Window<'_>) -> Option<String> {
    let mut parts = window.calm.iter().chain(window.whole).filter_map(|moment| moment.memory);
    let first = parts.next()?;
    let highest = parts.fold(first, MemoryParts::highest);
    let rows = memory(Some(&first), &highest);
    let (ThenAndNow { name, then, now }, by) = grew_most(&rows).filter(|(_, by)| *by >= MUCH * highest.used as f64)?;
    let [by, then, now] = [by, then.unwrap_or_default(), now.unwrap_or_default()].map(bytes);
    Some(format!("of memory, {name} grew most, by {by}, from {then} to {now}"))
}
