//! What expired keys hold: the memory that a full SCAN frees, as Twitter measured it, beside an estimate of it.
//!
//! A SCAN deletes each expired key that it meets. It runs in a script, in which the server's clock stands still: no
//! key expires while it runs, and all that had expired when it began are deleted. Active expiry is switched off just
//! before (`DEBUG SET-ACTIVE-EXPIRE 0`), so that the SCAN alone frees memory.

use anyhow::{Context as _, Result};

use crate::client::{Client, Sample};

/// Visits each key once.
const SCAN: &str = "local cursor = '0' repeat cursor = redis.call('SCAN', cursor, 'COUNT', 1000)[1] \
    until cursor == '0' return 'OK'";

/// What a load did to the keys with a time to live.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// When active expiry was switched on.
    pub begin: Sample,
    /// After the load, active expiry switched off.
    pub before: Sample,
    /// After the SCAN.
    pub after: Sample,
}

/// A server whose active expiry is switched on for the time of a load.
pub struct Switch {
    client: Client,
    begin: Sample,
}

impl Switch {
    /// Switches active expiry off, and deletes all keys: those that were written to measure the capacity would expire
    /// in the first seconds.
    pub fn off_without_keys(port: u16) -> Result<Self> {
        let mut client = Client::connect(port)?;
        set_active_expire(&mut client, "0")?;
        client.call(&["FLUSHALL"])?;
        let begin = Sample::default();
        Ok(Self { client, begin })
    }

    /// Switches active expiry on.
    pub fn on(&mut self) -> Result<()> {
        self.begin = Sample::take(&mut self.client)?;
        set_active_expire(&mut self.client, "1")
    }

    /// Switches active expiry off again after the load, and lets a SCAN delete what has expired.
    pub fn end(mut self) -> Result<Expiry> {
        let client = &mut self.client;
        set_active_expire(client, "0")?;
        let before = Sample::take(client)?;
        client.call(&["EVAL", SCAN, "0"])?;
        Ok(Expiry { begin: self.begin, before, after: Sample::take(client)? })
    }
}

fn set_active_expire(client: &mut Client, value: &str) -> Result<()> {
    let set = client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", value]);
    set.map(drop).context("active expiry cannot be switched off and on")
}

impl Expiry {
    /// Returns the bytes that the SCAN freed, except for those of clients.
    pub fn held(&self) -> u64 {
        (self.before.without_clients()).saturating_sub(self.after.without_clients())
    }

    /// Returns how many keys the SCAN deleted.
    pub fn held_keys(&self) -> u64 {
        self.after.expired_keys - self.before.expired_keys
    }

    /// Estimates what expired keys held as the recording rule does: from the stale ratio, used memory and client
    /// buffers.
    pub fn estimate(&self) -> f64 {
        self.before.stale_ratio * self.before.without_clients() as f64
    }

    /// Returns how many keys expired under load.
    pub fn expired_keys(&self) -> u64 {
        self.before.expired_keys - self.begin.expired_keys
    }
}
