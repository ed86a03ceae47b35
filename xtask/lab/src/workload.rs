//! The clients' requests: `SET`s of new keys, and `MGET`s of many of the newest ones.

use fastrand::Rng;

/// The mix.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Mix {
    /// Share of requests that are `SET`s, 0 to 1; the others are `MGET`s.
    pub set_share: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys of one `MGET`.
    pub keys_per_read: usize,
    /// An `MGET` asks for random ones of this many newest keys.
    pub read_window: u64,
    /// Mean time to live of a key, in seconds: each gets between 0 and twice this.
    pub ttl_seconds: f64,
}

/// Writes request after request.
pub struct Workload {
    mix: Mix,
    random: Rng,
    value: Vec<u8>,
    /// Keys set so far; the number of the next one.
    keys: u64,
}

impl Workload {
    /// Begins a workload. It is always the same for the same mix.
    pub fn new(mix: Mix) -> Self {
        Self {
            random: Rng::with_seed(1),
            value: vec![b'v'; mix.value_bytes],
            keys: 0,
            mix,
        }
    }

    /// Appends one request to `output`.
    pub fn request(&mut self, output: &mut Vec<u8>) {
        if self.random.f64() < self.mix.set_share {
            let share = self.random.f64();
            self.set(share, output);
        } else {
            self.read(output);
        }
    }

    /// Appends a `SET` of a new key with the time to live that a key written some time ago would have left.
    pub fn set_earlier(&mut self, output: &mut Vec<u8>) {
        // A key that lives long is seen more often, at any time of its life. Where lives are spread evenly,
        // the density of what is left of them falls linearly.
        let share = 1.0 - self.random.f64().sqrt();
        self.set(share, output);
    }

    /// Appends a `SET` of a key that lives for this share of the longest life.
    fn set(&mut self, share: f64, output: &mut Vec<u8>) {
        let key = key(self.keys);
        self.keys += 1;
        let milliseconds = share * 2.0 * self.mix.ttl_seconds * 1000.0;
        let ttl = (milliseconds.round() as u64).max(1);
        redis::cmd("SET")
            .arg((key, &self.value[..], "PX", ttl))
            .write_packed_command(output);
    }

    fn read(&mut self, output: &mut Vec<u8>) {
        let window = self.mix.read_window.min(self.keys).max(1);
        let keys: Vec<String> = (0..self.mix.keys_per_read)
            .map(|_| key(self.keys.saturating_sub(1 + self.random.u64(..window))))
            .collect();
        redis::cmd("MGET").arg(keys).write_packed_command(output);
    }
}

fn key(number: u64) -> String {
    format!("key:{number:010}")
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, Result};

    use super::*;

    const MIX: Mix = Mix {
        set_share: 0.5,
        value_bytes: 10,
        keys_per_read: 3,
        read_window: 100,
        ttl_seconds: 60.0,
    };

    /// Returns the words of one command, whose lengths must be right.
    fn words(bytes: &[u8]) -> Result<Vec<String>> {
        let mut lines = str::from_utf8(bytes)?.split_terminator("\r\n");
        let count = lines.next().and_then(|count| count.strip_prefix('*'));
        let mut words = Vec::new();
        while let (Some(length), Some(word)) = (lines.next(), lines.next()) {
            assert_eq!(length, format!("${}", word.len()));
            words.push(word.to_owned());
        }
        assert_eq!(count.context("no command")?, words.len().to_string());
        Ok(words)
    }

    #[test]
    fn requests_follow_the_mix() -> Result<()> {
        let mut workload = Workload::new(MIX);
        let mut sets: u64 = 0;
        for _ in 0..2000 {
            let mut output = Vec::new();
            workload.request(&mut output);
            let words = words(&output)?;
            if words[0] == "SET" {
                assert_eq!(words[1], key(sets));
                assert_eq!(words[2].len(), 10);
                let ttl: u64 = words[4].parse()?;
                assert!((1..=120_000).contains(&ttl));
                sets += 1;
            } else {
                assert_eq!(words.len(), 4);
                let newest = key(sets.saturating_sub(1));
                let oldest = key(sets.saturating_sub(100));
                assert!(
                    words[1..]
                        .iter()
                        .all(|key| *key >= oldest && *key <= newest)
                );
            }
        }
        assert!((900..1100).contains(&sets), "{sets} SETs in 2,000 requests");
        Ok(())
    }
}
