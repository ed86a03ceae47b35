//! A server that grows towards its limit.

use std::process::{Command, Stdio};

use anyhow::Result;
use evictscope_testkit::{owned::Owned, redis::Redis};

/// A server that reaches its limit in some minutes if it goes on growing. Without it, only chance would
/// give a server whose memory is on its way to the limit.
pub struct Growing {
    // Before the server, because fields are dropped in this order.
    _writer: Owned,
    _server: Redis,
}

impl Growing {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let server = Redis::start(&[])?;
        let mut command = Command::new("redis-cli");
        command
            .args(["-p", &server.port().to_string()])
            // 200 kB a second, for 200 s at most.
            .args(["-r", "4000", "-i", "0.05", "append", "growing"])
            .arg("x".repeat(10_000))
            .stdout(Stdio::null());
        Ok(Self {
            _writer: Owned::start(&mut command)?,
            _server: server,
        })
    }
}
