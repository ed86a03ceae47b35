//! How many of the keys with a time to live have expired and are still held, from random entries of their tables.

use std::time::{Duration, Instant};

use evictscope_plan::ProbePlan;
use evictscope_telemetry::ExpiredSample;

use super::databases::{Databases, KeyTables};
use super::dict::DictEntry;
use super::layout::KeyspaceLayout;
use super::memory::Memory;
use super::object::Object;
use crate::clock::unix_time;

/// Keys that are enough: of these, a share is known to 5 points in 95 of 100 samples.
const ENOUGH: u64 = 400;
/// The most places that are looked at, where most are empty, and the longest time for that.
const MOST_PLACES: u32 = 8_192;
const LONGEST: Duration = Duration::from_millis(50);
/// For how long databases that were found are looked at: a server may make more of them.
const FOUND_FOR: Duration = Duration::from_secs(60);

/// Samples the keys of one server again and again.
#[derive(Default)]
pub struct ExpiredSampler {
    databases: Option<(Instant, Databases)>,
}

impl ExpiredSampler {
    /// Looks at some of the keys with a time to live. The server's executable has `plan` and was loaded with `bias`.
    /// Returns `None` if a table is about to change. Fails if the server's databases are not found.
    pub fn sample(&mut self, memory: &Memory, plan: &ProbePlan, bias: u64) -> anyhow::Result<Option<ExpiredSample>> {
        let begun = Instant::now();
        let is_new = |(found, _): &(Instant, _)| begun.duration_since(*found) < FOUND_FOR;
        let known = match self.databases.take().filter(is_new) {
            Some(known) => known,
            None => (begun, Databases::find(memory, plan, bias)?),
        };
        let (_, databases) = self.databases.insert(known);
        let Some(tables) = databases.expiring(memory) else {
            self.databases = None;
            return Ok(None);
        };
        Ok(Some(draw(memory, databases.layout, &tables)))
    }
}

fn draw(memory: &Memory, layout: &KeyspaceLayout, tables: &KeyTables) -> ExpiredSample {
    let begun = Instant::now();
    let mut sample = ExpiredSample { keys: tables.used(), ..ExpiredSample::default() };
    for _ in 0..MOST_PLACES {
        if sample.looked_at >= ENOUGH || sample.keys == 0 || begun.elapsed() >= LONGEST {
            break;
        }
        let place = fastrand::u64(..tables.places());
        let chain = tables.find(memory, place).and_then(|(_, table, place)| {
            let chain = table.chain(memory, place)?.into_iter();
            chain.map(|entry| has_expired(memory, layout, &entry)).collect::<Option<Vec<bool>>>()
        });
        // A chain that has just changed says nothing.
        for has_expired in chain.unwrap_or_default() {
            sample.looked_at += 1;
            sample.expired += u64::from(has_expired);
        }
    }
    sample
}

/// Returns whether the key of an entry has expired by now.
fn has_expired(memory: &Memory, layout: &KeyspaceLayout, entry: &DictEntry) -> Option<bool> {
    let expires = match layout.object.expires {
        0 => entry.is_same(memory, layout)?.then_some(entry.value)?,
        _ => Object::read(memory, layout, entry.key)?.expires?,
    };
    Some(u128::from(expires) < unix_time().as_millis())
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::{ENOUGH, KeyTables, Memory, draw, unix_time};
    use crate::keys::databases::Keys;
    use crate::keys::dict::Dict;
    use crate::keys::layout::REDIS_7_0;
    use crate::keys::tests;

    #[test]
    fn the_share_of_expired_keys_is_that_of_the_tables() -> anyhow::Result<()> {
        let memory = Memory::of_this_process()?;
        let now = unix_time().as_millis() as u64;
        // Chains of two, three quarters of them expired; every other place is empty.
        let key = |index: u64| {
            let expires = if index % 8 < 6 { now - 1 } else { now + 600_000 };
            let [first, second] = [index, index + 1].map(|key| key * 8 + 8);
            let second: &[u64; 3] = Box::leak(Box::new([second, expires, 0]));
            let first: &[u64; 3] = Box::leak(Box::new([first, expires, second.as_ptr() as u64]));
            first.as_ptr() as u64
        };
        let places: Vec<u64> = (0..4_096).map(|place| if place % 2 == 0 { key(place) } else { 0 }).collect();
        let dict = tests::at(tests::dict(tests::at(&places), 4_096, 12));
        let all = Dict::read(&memory, &REDIS_7_0, dict).context("no table")?;
        let expires = Dict::empty(&REDIS_7_0);
        let tables = KeyTables::new(vec![Keys { all, expires }]);
        let sample = draw(&memory, &REDIS_7_0, &tables);
        assert_eq!(sample.keys, 4_096);
        // On a busy machine its time may run out first.
        assert!(memory.is_spent() || sample.looked_at >= ENOUGH, "{sample:?}");
        assert!(sample.looked_at < ENOUGH + 2, "{sample:?}");
        let ratio = sample.ratio().unwrap_or_default();
        // Chains are drawn, and both of their keys are alike: four standard errors.
        let error = (0.75 * 0.25 / (sample.looked_at as f64 / 2.0)).sqrt();
        assert!((ratio - 0.75).abs() < 4.0 * error, "{sample:?}");
        let none = draw(&memory, &REDIS_7_0, &KeyTables::new(Vec::new()));
        assert_eq!((none.keys, none.looked_at, none.ratio()), (0, 0, None));
        Ok(())
    }
}
