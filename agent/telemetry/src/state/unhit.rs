//! Checks whether keys are evicted while evicting calls are observed and no probe is hit: then the server evicts in
//! other code than the probed one.
//!
//! A call that began before its probes were placed hits none. So keys count only once the main thread has done
//! something else since.

use std::time::Duration;

use crate::{BrokenInvariant, Withdrawal};

/// A server at a reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HitReading {
    pub at: Duration,
    /// For how long evicting calls were observed until then.
    pub observed: Duration,
    /// How often the probe was hit that every evicting call passes; read before the rest.
    pub hits: u64,
    pub evicted_keys: Option<u64>,
    pub commands: Option<u64>,
    /// When its main thread last came to rest.
    pub rested: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unhit {
    last: HitReading,
    /// The first reading since which calls were observed all the time and no probe was hit.
    quiet: Option<HitReading>,
    /// Keys that had been evicted when no call that began before that could still be under way.
    keys: Option<u64>,
    /// How many keys were evicted without a hit, once that is certain.
    pub proof: Option<Withdrawal>,
}

impl Unhit {
    pub fn advance(&mut self, now: HitReading) {
        let last = std::mem::replace(&mut self.last, now);
        let is_observed = now.observed.saturating_sub(last.observed) >= now.at.saturating_sub(last.at);
        // CONFIG RESETSTAT sets the counter to 0.
        let is_known = last.evicted_keys.is_some() && now.evicted_keys >= last.evicted_keys;
        let is_quiet = is_observed && is_known && now.hits == last.hits;
        let Some(quiet) = self.quiet.filter(|_| is_quiet) else {
            (self.quiet, self.keys) = (Some(now), None);
            return;
        };
        match self.keys.zip(last.evicted_keys) {
            // The hits were read after these keys.
            Some((before, keys)) if keys > before => {
                let evicted = keys - before;
                let proof = Withdrawal::of(BrokenInvariant::Unhit, evicted, evicted);
                self.proof.get_or_insert(proof);
            }
            Some(_) => {}
            None => {
                let has_rested = now.rested.is_some_and(|rested| rested > quiet.at);
                let commands = now.commands.zip(quiet.commands);
                // One of the two may have been under way.
                let has_gone_on = commands.is_some_and(|(now, before)| now >= before + 2);
                self.keys = now.evicted_keys.filter(|_| has_rested || has_gone_on);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{HitReading, Unhit};

    /// Returns how many keys are proven to have been evicted without a hit, after readings every 100 ms of hits,
    /// evicted keys and commands.
    fn proven(readings: &[(u64, u64, u64)]) -> Option<u64> {
        let mut unhit = Unhit::default();
        for (tenth, (hits, keys, commands)) in (1..).zip(readings) {
            let at = Duration::from_millis(100 * tenth);
            unhit.advance(HitReading {
                at,
                observed: at,
                hits: *hits,
                evicted_keys: Some(*keys),
                commands: Some(*commands),
                rested: None,
            });
        }
        unhit.proof.map(|proof| proof.failed)
    }

    #[test]
    fn keys_that_are_evicted_without_a_hit_are_proof() {
        assert_eq!(proven(&[(3, 50, 7), (3, 60, 70), (3, 90, 140), (3, 120, 200)]), Some(30));
        assert_eq!(proven(&[(3, 50, 7), (4, 60, 70), (5, 90, 140), (6, 120, 200)]), None);
        // The hits of a reading are those from before its keys.
        assert_eq!(proven(&[(3, 50, 7), (3, 50, 70), (3, 90, 140), (4, 90, 200)]), None);
    }

    #[test]
    fn a_call_that_began_before_its_probes_is_no_proof() {
        assert_eq!(proven(&[(0, 50, 7), (0, 60, 7), (0, 90, 7), (0, 900, 8)]), None);
        assert_eq!(proven(&[(3, 50, 7), (3, 60, 70), (3, 0, 1), (3, 2, 9), (3, 2, 30)]), None);
    }

    #[test]
    fn what_was_not_observed_all_the_time_is_no_proof() {
        let mut unhit = Unhit::default();
        for tenth in 0..10 {
            let at = Duration::from_millis(100 * tenth);
            unhit.advance(HitReading {
                at,
                observed: at * 9 / 10,
                evicted_keys: Some(tenth * 10),
                rested: Some(at),
                ..HitReading::default()
            });
        }
        assert!(unhit.proof.is_none());
    }
}
