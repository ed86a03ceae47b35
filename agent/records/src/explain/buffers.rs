//! Client buffers, and those of replicas.

use evictscope_telemetry::BurstKind;

use super::CauseKind;
use super::account::Account;
use super::finding::{Finding, explains, finding, share_of, time_limit};
use super::growth::Growth;
use super::window::Window;
use crate::text::size;

/// Client buffers have grown when they did so by this part of what they were, as in a burst's kind.
const LEAST_GROWTH: f64 = 0.1;

pub fn client_buffers(window: &Window<'_>, account: &Account) -> Option<Finding> {
    let growth = account.client_buffers.filter(|_| window.has_calm())?;
    let grew = growth.bytes();
    let has_grown = grew as f64 >= LEAST_GROWTH * growth.from as f64 && growth.is_unusual();
    if !has_grown || !explains(account, grew) {
        return None;
    }
    let at_limit = window.limit().map_or_else(String::new, |limit| {
        format!(" at the limit of {}", size(limit))
    });
    let summary = format!(
        "Client buffers grew by {}, from {} to {}, and evictions had to make room for them{at_limit}",
        size(grew),
        size(growth.from),
        size(growth.to)
    );
    let mut evidence = Vec::new();
    if let Some((before, peak)) = account.classes {
        let classes = [
            ("normal clients", before.normal, peak.normal),
            ("subscribers", before.pubsub, peak.pubsub),
            ("the link to the primary", before.primary, peak.primary),
        ];
        let grown = classes
            .into_iter()
            .filter(|(_, before, peak)| peak > before);
        let grown = grown
            .map(|(class, before, peak)| format!("{class} {} to {}", size(before), size(peak)));
        evidence.push(format!("By class: {}.", Vec::from_iter(grown).join(", ")));
    }
    evidence.push(format!(
        "In the {:.0} s before they were rarely above {}; they were {} when evictions began.",
        window.calm_length().as_secs_f64(),
        size(growth.usual),
        size(growth.at_start)
    ));
    evidence.push(share_of(account, grew));
    evidence.extend(amplification(window));
    evidence.extend(time_limit(window));
    finding(CauseKind::ClientBuffers, grew as f64, summary, evidence)
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
    let summary = match account.not_counted.filter(|growth| growth.bytes() >= grew) {
        Some(growth) => {
            evidence.push(share_of(account, grew));
            format!(
                "Replication and AOF buffers grew by {}, to {}: they do not count against maxmemory, but take memory of the host",
                size(grew),
                size(growth.to)
            )
        }
        None => format!(
            "Buffers of replicas grew to {}: as much of that as the replication backlog holds counts against maxmemory",
            size(account.replicas.map_or(grew, |growth| growth.to))
        ),
    };
    finding(
        CauseKind::ReplicationBuffers,
        grew as f64,
        summary,
        evidence,
    )
}

/// Says why the burst is said to have fed on itself, where it is.
fn amplification(window: &Window<'_>) -> Option<String> {
    let (kind, reason) = window.burst()?.kind();
    (kind == BurstKind::SelfAmplifying).then(|| format!("The burst fed on itself: {reason}."))
}
