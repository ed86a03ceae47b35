//! Finds the causes that the evidence shows.

use super::account::{Account, LoweredLimit};
use super::finding::{Finding, LEAST_BYTES, explains, finding, share_of, time_limit};
use super::slow_calls::SlowCalls;
use super::window::Window;
use super::{Cause, CauseKind, buffers, loss, parts, stalls};
use crate::Occasion;
use crate::text::{bytes, count, seconds, size};

/// Things that happened within this time happened together, seconds: some readings.
const AT_ONCE: f64 = 0.3;

/// Returns the causes, the one that explains most first.
pub fn found(window: &Window<'_>, account: &Account) -> Vec<Cause> {
    let mut found = Vec::from_iter(expiry_behind(window, account));
    // Who stalled clients did not take the memory that such a record is about.
    let is_of_memory = matches!(window.record.occasion, Occasion::Lost | Occasion::Buffers | Occasion::Refused);
    let stalls = stalls::found(window).into_iter();
    found.extend(stalls.map(|(weight, cause)| (if is_of_memory { 0.0 } else { weight }, cause)));
    found.extend(loss::found(window));
    // If nothing had to be evicted, what took memory did not cause the stall, but came from it.
    let has_evicted = window.has_evicted();
    if let Some(nothing) = nothing_to_evict(window).filter(|_| has_evicted) {
        // Whatever took memory, no room was made for it. If clients have most of it, that is why no key is left.
        let (weight, nothing) = buffers::fill_limit(window).unwrap_or(nothing);
        // What will be free in a moment is why it was needed.
        let is_freed = found.iter().any(|(_, cause)| cause.kind == CauseKind::LazyFreeing);
        found.push((if is_freed { 1.0 } else { weight }, nothing));
    } else if has_evicted {
        let all = [
            slow_calls(window),
            buffers::client_buffers(window, account),
            buffers::replication(window, account),
            resized_table(window, account),
            lowered_limit(account),
        ];
        found.extend(all.into_iter().flatten().chain(parts::found(window, account)));
    }
    if found.is_empty() && window.record.occasion == Occasion::Buffers {
        found.extend(buffers::swollen(window));
    }
    if !found.iter().any(|(_, cause)| holds_memory(cause.kind)) && has_evicted {
        found.extend(loss::stayed(window));
    }
    if found.is_empty() && has_evicted {
        found.extend(data(window, account));
    }
    found.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    found.into_iter().map(|(_, cause)| cause).collect()
}

/// Returns whether it is what took the memory for which keys were evicted.
fn holds_memory(cause: CauseKind) -> bool {
    use CauseKind::{ClientBuffers, ClusterLinks, Flushed, LazyFreeing, LoweredLimit, OverLimit};
    use CauseKind::{ReplicationBuffers, ResizedTable, Scripts, TrackingTable};
    matches!(cause, ClientBuffers | ClusterLinks | Flushed | LazyFreeing | LoweredLimit | OverLimit)
        || matches!(cause, ReplicationBuffers | ResizedTable | Scripts | TrackingTable)
}

fn resized_table(window: &Window<'_>, account: &Account) -> Option<Finding> {
    let step = account.table.filter(|step| window.has_calm() && explains(account, step.bytes))?;
    let size = size(step.bytes);
    let before = window.began_us as f64 / 1e6 - step.unix_us as f64 / 1e6;
    let when = match before >= 0.0 {
        _ if before.abs() <= AT_ONCE => "as evictions began".to_owned(),
        true => format!("{} before evictions began", seconds(before)),
        false => format!("{} after evictions began", seconds(-before)),
    };
    let summary = format!("A hash table was resized: used memory rose by {size} at once, {when}");
    let mut evidence = vec![
        format!("{size} are {} buckets of 8 bytes, a power of two.", count(step.bytes as f64 / 8.0)),
        "Client buffers did not grow by as much in the seconds after.".to_owned(),
        share_of(account, step.bytes),
    ];
    if let Some(after) = step.freed_after {
        let half = bytes(step.bytes as f64 / 2.0);
        evidence.push(format!("{} later the old table of {half} was freed at once.", seconds(after)));
    }
    finding(CauseKind::ResizedTable, step.bytes as f64, summary, evidence)
}

fn lowered_limit(account: &Account) -> Option<Finding> {
    let LoweredLimit { from, to, used, steps } = account.lowered?;
    let over = used.saturating_sub(to);
    if over < LEAST_BYTES {
        return None;
    }
    let from = if from == 0 { "no limit".to_owned() } else { size(from) };
    let (to, used) = (size(to), size(used));
    let steps = if steps == 1 { String::new() } else { format!(" in {steps} steps") };
    let summary = format!("maxmemory was lowered{steps} from {from} to {to} while {used} were used");
    finding(CauseKind::LoweredLimit, over as f64, summary, vec![format!("{} had to be freed.", size(over))])
}

fn expiry_behind(window: &Window<'_>, account: &Account) -> Option<Finding> {
    let behind = account.expired?;
    let share = 100.0 * behind.share;
    let summary = format!(
        "Expiry was behind: {share:.0} % of the keys with a TTL had expired and still held some {}",
        size(behind.held)
    );
    let mut evidence = vec![
        format!("Expire cycles took {:.0} % of the last 10 s before the server evicted.", 100.0 * behind.expiring),
        "What they held is that share times all memory but client buffers, divided by 2.5 for keys without a TTL: an estimate, which is too high where few keys have one.".to_owned(),
    ];
    let risen = 100.0 * behind.risen;
    if risen.abs() >= 1.0 {
        evidence.push(format!("That share had changed by {risen:+.0} points since the calm before began."));
    }
    let sampled = window.burst().and_then(|burst| burst.expiry_behind());
    evidence.extend(sampled.map(|said| format!("In the last minute before, {said}.")));
    finding(CauseKind::ExpiryBehind, behind.held as f64, summary, evidence)
}

/// Says what took the time of slow evicting calls, if that is decided.
fn slow_calls(window: &Window<'_>) -> Option<Finding> {
    let slow = SlowCalls::of(window)?;
    let (kind, shown) = slow.work.clone()?;
    let configuration = &window.record.configuration;
    let (freed, longest) = (size(slow.freed), seconds(slow.longest.as_secs_f64()));
    let took = match slow.calls {
        1 => format!("One evicting call took {longest}"),
        calls => format!("{calls} evicting calls took up to {longest} each"),
    };
    let mut evidence = vec![
        shown,
        format!("Around the longest, memory fell by {freed}. Keys evicted in it: about {}.", count(slow.keys as f64)),
        format!("What is slow took {:.0} % of the time in evicting calls.", 100.0 * slow.share),
    ];
    let what = match kind {
        CauseKind::Choosing => {
            let of = configuration.databases.zip(configuration.maxmemory_samples);
            of.map_or_else(|| "to choose keys".to_owned(), |(databases, samples)| {
                format!("to choose keys: for each key, {samples} samples (maxmemory-samples) in each of {databases} databases that has some")
            })
        }
        CauseKind::BigKey => {
            let what = if slow.are_strings { "big strings" } else { "big values" };
            format!("to free {what} in the main thread: memory fell by {freed} around the longest")
        }
        CauseKind::Invalidating => {
            let all = window.record.moments.iter().filter_map(|moment| moment.memory?.tracked_items);
            evidence.extend(all.max().map(|most| {
                format!(
                    "The tracking table had up to {} ids of clients: it keeps them when a client has gone.",
                    count(most as f64)
                )
            }));
            "to invalidate keys that clients had tracked (CLIENT TRACKING)".to_owned()
        }
        CauseKind::Telling => "to tell replicas, the AOF, subscribers or modules of evicted keys".to_owned(),
        _ => "and slept for most of it".to_owned(),
    };
    // It took most of the time, whatever memory went to.
    finding(kind, f64::MAX, format!("{took} {what}"), evidence)
}

fn nothing_to_evict(window: &Window<'_>) -> Option<Finding> {
    if !window.failed_to_evict() {
        return None;
    }
    let policy = window.record.configuration.maxmemory_policy.as_deref();
    let evicted = window.evicted_keys().filter(|keys| *keys > 0);
    let left = if evicted.is_some() { " left" } else { "" };
    let why = match policy {
        Some("noeviction") => "the policy noeviction forbids it".to_owned(),
        Some(policy) if policy.starts_with("volatile-") => {
            format!("the policy {policy} allows keys with a TTL only, and there were none{left}")
        }
        Some(policy) => format!("there was no key left (policy {policy})"),
        None => "the policy is not known".to_owned(),
    };
    let summary = format!("Memory was over its limit and no key could be evicted: {why}");
    let mut evidence = vec![match evicted.zip(window.expiring_keys().max()) {
        Some((keys, most)) => {
            let [keys, most] = [keys, most].map(|keys| count(keys as f64));
            format!("Of up to {most} keys with a TTL, {keys} were evicted before.")
        }
        None => "Calls tried to evict, the slowest of them all failed, and no key was evicted.".to_owned(),
    }];
    let refused = |refused| format!("The server answered {} commands with an error meanwhile.", count(refused as f64));
    evidence.extend(window.refused().map(refused));
    evidence.extend(parts::largest(window));
    finding(CauseKind::NothingToEvict, f64::INFINITY, summary, evidence)
}

fn data(window: &Window<'_>, account: &Account) -> Option<Finding> {
    // What else could have taken the memory has to be known.
    account.client_buffers?;
    account.not_counted?;
    let written = account.written.filter(|written| explains(account, *written))?;
    let keys = window.evicted_keys()?;
    let in_time = seconds(window.seconds());
    let summary =
        format!("Commands wrote at the limit, and in {in_time} {} keys were evicted to make room", count(keys as f64));
    let mut evidence = vec![format!("Writes took {}.", account.written_text(written))];
    if let Some(rise) = account.rise_before.filter(|rise| *rise > 0.0) {
        evidence.push(format!(
            "In the {:.0} s before, all but client buffers grew by {} a second.",
            window.calm_length().as_secs_f64() / 2.0,
            bytes(rise)
        ));
    }
    evidence.extend(time_limit(window));
    finding(CauseKind::Data, written as f64, summary, evidence)
}
