//! Client buffers, and those of replicas.

use evictscope_telemetry::{Burst, BurstKind, ClientBuffers, MemoryPart, Moment};

use super::CauseKind;
use super::account::{Account, without_replicas};
use super::finding::{Finding, explains, finding, share_of, time_limit};
use super::growth::{Growth, growth_since_lowest};
use super::parts::made_room;
use super::window::Window;
use crate::text::{capital, size};

/// Client buffers leave no room for keys from this share of the limit on.
const MOST: f64 = 0.5;
/// Client buffers have grown if they did so by this share of what they were, as in a burst's kind.
const LEAST_GROWTH: f64 = 0.1;

pub fn client_buffers(window: &Window<'_>, account: &Account) -> Option<Finding> {
    let growth = account.client_buffers.filter(|_| window.has_calm())?;
    let grew = growth.bytes();
    let has_grown = grew as f64 >= LEAST_GROWTH * growth.from as f64 && growth.is_unusual();
    if !has_grown || !explains(account, grew) {
        return None;
    }
    let grown = account.classes.map(|(before, peak)| grown_by_class(before, peak));
    let class = grown.as_deref().and_then(|grown| largest(grown, grew));
    let name = class.map_or_else(|| "Client buffers".to_owned(), |class| format!("Client buffers of {class}"));
    let summary = made_room(window, &name, growth);
    let mut evidence = Vec::new();
    if let Some(grown) = grown {
        let grown = grown.iter().map(|(class, before, peak)| format!("{class} {} to {}", size(*before), size(*peak)));
        evidence.push(format!("By class: {}.", Vec::from_iter(grown).join(", ")));
    }
    evidence.push(format!(
        "In the {:.0} s before they were rarely above {}; they were {} when evictions began.",
        window.calm_length().as_secs_f64(),
        size(growth.usual),
        size(growth.at_start)
    ));
    evidence.push(share_of(account, grew));
    if window.whole.iter().filter_map(|moment| moment.used_memory).max() < Some(growth.to) {
        evidence
            .push("That is more than all memory: each reply that points to a value is accounted all of it.".to_owned());
    }
    if let Some((BurstKind::SelfAmplifying, reason)) = window.burst().map(Burst::kind) {
        evidence.push(format!("The burst fed on itself: {reason}."));
    }
    evidence.extend(time_limit(window));
    finding(CauseKind::ClientBuffers, grew as f64, summary, evidence)
}

/// A class of clients, what their buffers were, and what they grew to, bytes.
type Class = (&'static str, u64, u64);

/// Returns the classes whose buffers grew, except replicas.
fn grown_by_class(before: ClientBuffers, peak: ClientBuffers) -> Vec<Class> {
    let classes = [
        ("normal clients", before.normal, peak.normal),
        ("subscribers", before.pubsub, peak.pubsub),
        ("the link to the primary", before.primary, peak.primary),
    ];
    Vec::from_iter(classes.into_iter().filter(|(_, before, peak)| peak > before))
}

/// Returns the class that has more than half of `all`.
fn largest(grown: &[Class], all: u64) -> Option<&'static str> {
    let by = |class: &&Class| class.2 - class.1;
    let largest = grown.iter().max_by_key(by)?;
    (by(&largest).saturating_mul(2) > all).then_some(largest.0)
}

/// Returns whether subscribers had most of them at the peak.
pub fn are_of_subscribers(window: &Window<'_>) -> bool {
    let all = window.whole.iter().filter_map(|moment| moment.client_buffers);
    let peak = all.max_by_key(|buffers| without_replicas(*buffers));
    peak.is_some_and(|peak| peak.pubsub.saturating_mul(2) > without_replicas(peak))
}

/// Describes client buffers that take much of the memory, but evict nothing yet.
pub fn swollen(window: &Window<'_>) -> Option<Finding> {
    let shares = window.whole.iter().filter_map(|moment| Some((moment.buffers_share()?, moment.client_buffers?)));
    let (share, buffers) = shares.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let all = without_replicas(buffers);
    let classes = grown_by_class(ClientBuffers { normal: 0, replica: 0, pubsub: 0, primary: 0 }, buffers);
    let of = largest(&classes, all).map_or_else(String::new, |class| format!(" of {class}"));
    let summary = format!("Client buffers{of} held up to {}, {:.0} % of maxmemory", size(all), 100.0 * share);
    let classes = classes.iter().map(|(class, _, bytes)| format!("{class} {}", size(*bytes)));
    let evidence = vec![format!("By class: {}.", Vec::from_iter(classes).join(", "))];
    finding(CauseKind::ClientBuffers, all as f64, summary, evidence)
}

/// Describes client buffers that took most of the limit, so that no key was left to evict.
pub fn fill_limit(window: &Window<'_>) -> Option<Finding> {
    let (_, cause) = swollen(window)?;
    let most = window.whole.iter().filter_map(Moment::buffers_share).fold(0.0, f64::max);
    let left = window.whole.iter().filter_map(|moment| moment.memory?.keys).min();
    (most >= MOST && left.is_none_or(|keys| keys == 0)).then_some((f64::INFINITY, cause))
}

pub fn replication(window: &Window<'_>, account: &Account) -> Option<Finding> {
    let grew = account.replication().filter(|_| window.has_calm())?;
    if !explains(account, grew) {
        return None;
    }
    let of = |growth: Growth| format!("{} to {}", size(growth.from), size(growth.to));
    let mut evidence = Vec::from_iter(account.not_counted.map(|growth| {
        let growth = of(growth);
        format!("Replication and AOF buffers that do not count against maxmemory: {growth}.")
    }));
    evidence.extend(account.replicas.map(|growth| {
        let growth = of(growth);
        format!("Client buffers of replicas: {growth} (each replica is accounted all of a buffer that they share).")
    }));
    let not_counted = account.not_counted.filter(|growth| growth.bytes() >= grew);
    let all = not_counted.map(|growth| ("replication and AOF buffers", growth));
    let (name, most) = named(window).or(all).or_else(|| Some((MemoryPart::Replicas.title(), account.replicas?)))?;
    let [by, from, to] = [most.bytes(), most.from, most.to].map(size);
    let counts = if not_counted.is_some() {
        evidence.push(share_of(account, grew));
        "they do not count against maxmemory, but take memory of the host"
    } else {
        "as much of that as the replication backlog holds counts against maxmemory"
    };
    let summary = format!("{} grew by {by}, from {from} to {to}: {counts}", capital(name));
    finding(CauseKind::ReplicationBuffers, grew as f64, summary, evidence)
}

/// Returns which of replicas' buffers, the backlog and the AOF buffer grew most, where these parts are read.
fn named(window: &Window<'_>) -> Option<(&'static str, Growth)> {
    let parts = [MemoryPart::Replicas, MemoryPart::Backlog, MemoryPart::AofBuffer];
    let grown = parts.into_iter().filter_map(|part| {
        Some((part.title(), growth_since_lowest(window, |moment: &Moment| moment.memory?.get(part))?))
    });
    grown.max_by_key(|(_, growth)| growth.bytes()).filter(|(_, growth)| growth.bytes() > 0)
}
