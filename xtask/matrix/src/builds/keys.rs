//! Compares what `evictscope keys` finds in a build with what the server says about each key.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::cache;
use evictscope_testkit::redis::PrivateBuild;
use evictscope_testkit::wait::until;

use super::Build;
use crate::table::Row;

/// How many keys are made.
const KEYS: u64 = 5_000;

/// How far the sum of what all keys take may be off: of large values, only a few elements are looked at.
const NEAR: f64 = 0.05;

/// Fills a build with keys, and adds what was found.
pub fn compare(build: &Build, agent: &Path, row: &mut Row) -> Result<()> {
    let own = PrivateBuild::in_root(&build.program, build.root.as_deref())?;
    let redis = own.start(&["--maxmemory", "0"])?;
    cache::fill(&redis, KEYS)?;
    let bytes: f64 = cache::kinds(&redis)?.values().map(|kind| kind.bytes).sum();
    // While the server moves keys to larger tables, no table is looked through as a whole.
    let said = until("all keys are looked at", || {
        let said = cache::told(Command::new(agent), redis.pid(), &[])?;
        Ok((said["is_whole"] == true).then_some(said))
    })?;
    let told = said["bytes"].as_f64().context("no bytes")?;
    let right = said["sampled"] == KEYS && (told / bytes - 1.0).abs() < NEAR;
    let shown = format!("{told:.0} B of {bytes} in {} of {KEYS}", said["sampled"]);
    row.check("keys", right, &shown);
    Ok(())
}
