//! What expired keys hold: the memory that a full SCAN frees, as Twitter measured it, beside an estimate of it.
//!
//! A SCAN deletes each expired key that it meets. It runs in a script, in which the server's clock stands still: no
//! key expires while it runs, and all that had expired when it began are deleted. Active expiry is switched off just
//! before (`DEBUG SET-ACTIVE-EXPIRE 0`), so that the SCAN alone frees memory.

use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::{client::Client, sample::Sample};

/// Visits each key once.
const SCAN: &str = "local cursor = '0' repeat cursor = redis.call('SCAN', cursor, 'COUNT', 1000)[1] \
    until cursor == '0' return 'OK'";

/// The question for a [`Moment`].
const QUESTION: [&str; 6] = ["INFO", "server", "memory", "stats", "cpu", "keyspace"];

/// The server's own numbers at one moment. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Moment {
    /// What every sample has.
    #[serde(flatten)]
    pub sample: Sample,
    /// Keys, expired ones among them (`DBSIZE`).
    pub keys: u64,
    /// Those with a time to live.
    pub keys_with_ttl: u64,
}

/// What a load did to the keys with a time to live.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Expiry {
    /// When active expiry was switched on.
    pub begin: Moment,
    /// After the load, active expiry switched off.
    pub before: Moment,
    /// After the SCAN.
    pub after: Moment,
    /// How long the SCAN took.
    pub scan_seconds: f64,
}

/// A server whose active expiry is switched on for the time of a load.
pub struct Switch {
    client: Client,
    begin: Moment,
}

impl Switch {
    /// Switches active expiry off, and deletes all keys: those that were written to measure the capacity would expire
    /// in the first seconds.
    pub fn off_without_keys(port: u16) -> Result<Self> {
        let mut client = Client::connect(port)?;
        set_active_expire(&mut client, false)?;
        client.call(&["FLUSHALL"])?;
        Ok(Self {
            client,
            begin: Moment::default(),
        })
    }

    /// Switches active expiry on.
    pub fn on(&mut self) -> Result<()> {
        self.begin = Moment::take(&mut self.client)?;
        set_active_expire(&mut self.client, true)
    }

    /// Switches active expiry off again after the load, and lets a SCAN delete what has expired.
    pub fn end(mut self) -> Result<Expiry> {
        let client = &mut self.client;
        set_active_expire(client, false)?;
        let before = Moment::take(client)?;
        let begun = Instant::now();
        client.call(&["EVAL", SCAN, "0"])?;
        Ok(Expiry {
            begin: self.begin,
            before,
            scan_seconds: begun.elapsed().as_secs_f64(),
            after: Moment::take(client)?,
        })
    }
}

fn set_active_expire(client: &mut Client, on: bool) -> Result<()> {
    let value = if on { "1" } else { "0" };
    let set = client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", value]);
    set.context("active expiry cannot be switched off and on")?;
    Ok(())
}

impl Moment {
    /// Asks the server now.
    pub fn take(client: &mut Client) -> Result<Self> {
        Self::parse(&client.call(&QUESTION)?)
    }

    fn parse(text: &str) -> Result<Self> {
        // A server without keys has no such line.
        let line = text.lines().find_map(|line| line.strip_prefix("db0:"));
        let count = |name: &str| -> Result<u64> {
            let Some(line) = line else { return Ok(0) };
            let mut fields = line.trim().split(',');
            let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            let value = value.with_context(|| format!("no {name} in INFO keyspace: {line}"))?;
            Ok(value.parse()?)
        };
        Ok(Self {
            sample: Sample::parse(text)?,
            keys: count("keys")?,
            keys_with_ttl: count("expires")?,
        })
    }

    /// Returns the memory that is no client's. Clients come and go, and their buffers with them.
    fn without_clients(&self) -> u64 {
        let sample = &self.sample;
        sample.used_memory.saturating_sub(sample.client_buffers)
    }
}

impl Expiry {
    /// Returns the bytes that the SCAN freed, but for those of clients.
    pub fn held(&self) -> u64 {
        let (before, after) = (&self.before, &self.after);
        (before.without_clients()).saturating_sub(after.without_clients())
    }

    /// Returns how many keys the SCAN deleted.
    pub fn held_keys(&self) -> u64 {
        self.after.sample.expired_keys - self.before.sample.expired_keys
    }

    /// Returns these keys as a share of those with a time to live.
    pub fn held_ratio(&self) -> f64 {
        self.held_keys() as f64 / self.before.keys_with_ttl.max(1) as f64
    }

    /// Estimates what expired keys held as the recording rule does: from the stale ratio, used memory and client buffers.
    pub fn estimate(&self) -> f64 {
        self.before.sample.stale_ratio * self.before.without_clients() as f64
    }

    /// Returns how many keys expired under load.
    pub fn expired_keys(&self) -> u64 {
        self.before.sample.expired_keys - self.begin.sample.expired_keys
    }

    /// Returns how often a cycle ended at its time limit under load.
    pub fn time_limit_hits(&self) -> u64 {
        self.before.sample.time_limit_hits - self.begin.sample.time_limit_hits
    }

    /// Returns the time in expire cycles under load, as a share of all time.
    pub fn cycles_share(&self) -> f64 {
        let (begin, end) = (&self.begin.sample, &self.before.sample);
        (end.expire_cycle_seconds - begin.expire_cycle_seconds) / (end.at - begin.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// 100 keys of 1 MiB, 80 with a time to live, of which 20 have expired; the server believes that it is a half.
    fn expiry() -> Expiry {
        let moment = |used: u64, client_buffers: u64, keys, expired_keys| Moment {
            sample: Sample {
                at: expired_keys as f64,
                used_memory: used * MIB,
                client_buffers: client_buffers * MIB,
                expired_keys,
                time_limit_hits: expired_keys / 10,
                stale_ratio: 0.5,
                expire_cycle_seconds: expired_keys as f64 / 4.0,
                ..Sample::default()
            },
            keys,
            keys_with_ttl: keys - 20,
        };
        Expiry {
            begin: moment(51, 0, 50, 10),
            before: moment(111, 10, 100, 50),
            after: moment(82, 1, 80, 70),
            scan_seconds: 0.1,
        }
    }

    #[test]
    fn what_clients_held_is_not_counted() {
        let expiry = expiry();
        assert_eq!(expiry.held(), 20 * MIB);
        assert_eq!(expiry.held_keys(), 20);
        assert_eq!(expiry.held_ratio(), 0.25);
        assert_eq!(expiry.estimate(), 50.5 * MIB as f64);
    }

    #[test]
    fn only_what_happened_under_load_counts() {
        let expiry = expiry();
        assert_eq!(expiry.expired_keys(), 40);
        assert_eq!(expiry.time_limit_hits(), 4);
        assert_eq!(expiry.cycles_share(), 0.25);
    }

    #[test]
    fn the_keyspace_is_read_from_its_line() -> Result<()> {
        let rest = Sample::TEXT.to_owned();
        assert_eq!(Moment::parse(&rest)?.keys, 0);
        let line = "db0:keys=12,expires=7,avg_ttl=3000\r\n";
        let moment = Moment::parse(&(rest.clone() + line))?;
        assert_eq!((moment.keys, moment.keys_with_ttl), (12, 7));
        assert!(Moment::parse(&(rest + "db0:keys=12\r\n")).is_err());
        Ok(())
    }
}
