//! What expired keys hold: the memory that a full SCAN frees, as Twitter measured it, beside an estimate of it.
//!
//! A SCAN deletes each expired key that it meets. It runs in a script, in which the server's clock stands still: no
//! key expires while it runs, and all that had expired when it began are deleted. Active expiry is switched off just
//! before (`DEBUG SET-ACTIVE-EXPIRE 0`), so that the SCAN alone frees memory.

use std::time::Instant;

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
    /// How long the SCAN took.
    pub scan_seconds: f64,
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
        let begun = Instant::now();
        client.call(&["EVAL", SCAN, "0"])?;
        Ok(Expiry {
            begin: self.begin,
            before,
            scan_seconds: begun.elapsed().as_secs_f64(),
            after: Sample::take(client)?,
        })
    }
}

fn set_active_expire(client: &mut Client, value: &str) -> Result<()> {
    let set = client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", value]);
    set.map(drop)
        .context("active expiry cannot be switched off and on")
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

    /// Returns these keys as a share of those with a time to live.
    pub fn held_ratio(&self) -> f64 {
        self.held_keys() as f64 / self.before.keys_with_ttl.max(1) as f64
    }

    /// Estimates what expired keys held as the recording rule does: from the stale ratio, used memory and client buffers.
    pub fn estimate(&self) -> f64 {
        self.before.stale_ratio * self.before.without_clients() as f64
    }

    /// Returns how many keys expired under load.
    pub fn expired_keys(&self) -> u64 {
        self.before.expired_keys - self.begin.expired_keys
    }

    /// Returns how often a cycle ended at its time limit under load.
    pub fn time_limit_hits(&self) -> u64 {
        self.before.time_limit_hits - self.begin.time_limit_hits
    }

    /// Returns the time in expire cycles under load, as a share of all time.
    pub fn cycles_share(&self) -> f64 {
        let (begin, end) = (&self.begin, &self.before);
        (end.expire_cycle_seconds - begin.expire_cycle_seconds) / (end.at - begin.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn what_clients_held_and_what_was_before_the_load_is_not_counted() {
        // 100 keys of 1 MiB, 80 with a time to live, of which 20 have expired; the server believes that it is a half.
        let sample = |used: u64, client_buffers: u64, keys: u64, expired_keys| Sample {
            at: expired_keys as f64,
            used_memory: used * MIB,
            client_buffers: client_buffers * MIB,
            expired_keys,
            stale_ratio: 0.5,
            expire_cycle_seconds: expired_keys as f64 / 4.0,
            keys_with_ttl: keys - 20,
            ..Sample::default()
        };
        let expiry = Expiry {
            begin: sample(51, 0, 50, 10),
            before: sample(111, 10, 100, 50),
            after: sample(82, 1, 80, 70),
            scan_seconds: 0.1,
        };
        assert_eq!((expiry.held(), expiry.held_keys()), (20 * MIB, 20));
        assert_eq!(expiry.held_ratio(), 0.25);
        assert_eq!(expiry.estimate(), 50.5 * MIB as f64);
        assert_eq!((expiry.expired_keys(), expiry.cycles_share()), (40, 0.25));
    }
}
