//! Where the agent keeps what it writes.

use std::path::PathBuf;

/// Returns the directory that systemd made for this service (`StateDirectory=`), or else the usual one.
pub fn usual() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").filter(|given| !given.is_empty());
    given.unwrap_or_else(|| "/var/lib/evictscope".into()).into()
}
