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
