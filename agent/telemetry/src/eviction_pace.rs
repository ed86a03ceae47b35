//! How long evicting calls take that are not observed, by the keys that the server evicts.

use super::reading::Reading;
use super::snapshot::is_observed;

/// So many keys in one stretch give a mean: calls of which only a part fell into the stretch weigh little in it.
const LEAST_KEYS: u64 = 20;

/// The time in evicting calls for each key that they evict, as it was when calls were last observed.
///
/// While a server is sampled, calls are observed for some milliseconds twice a second. In between, the server's own
/// counter of evicted keys tells how many keys it evicts, and each takes about as long as just before. Calls that evict
/// nothing are not seen then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EvictionPace {
    /// Nanoseconds a key, in the last two stretches that were observed.
    ns_per_key: [Option<f64>; 2],
}

impl EvictionPace {
    /// Returns the time in evicting calls between two readings that was not observed, nanoseconds; 0 where that cannot
    /// be known. Learns from what was observed.
    pub fn unobserved_ns(&mut self, last: &Reading, now: &Reading) -> f64 {
        let keys = now
            .evicted_keys
            .zip(last.evicted_keys)
            // `CONFIG RESETSTAT` sets the counter back to 0.
            .and_then(|(now, last)| now.checked_sub(last));
        let Some(keys) = keys else {
            return 0.0;
        };
        let elapsed = now.at.saturating_sub(last.at);
        let observed = now.observed.saturating_sub(last.observed);
        if is_observed(elapsed, observed) {
            if keys >= LEAST_KEYS {
                let evicting_ns = now.evicting_ns.saturating_sub(last.evicting_ns);
                self.ns_per_key = [Some(evicting_ns as f64 / keys as f64), self.ns_per_key[0]];
            }
            return 0.0;
        }
        // A large key makes one stretch unlike the others; it is not in both.
        let ns_per_key = self.ns_per_key.into_iter().flatten().reduce(f64::min);
        let unobserved = elapsed.saturating_sub(observed);
        let share = unobserved.as_secs_f64() / elapsed.as_secs_f64();
        let most_ns = unobserved.as_nanos() as f64;
        (ns_per_key.unwrap_or(0.0) * keys as f64 * share).min(most_ns)
    }
}
