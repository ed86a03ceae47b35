//! The clients' requests: writes of new keys, and `MGET`s of many of the newest ones.

use fastrand::Rng;

/// Sets each of its keys to the first argument. The second is their time to live in milliseconds.
const SET_ALL: &str = "for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end";

#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Share of requests that are writes, 0 to 1; the others are `MGET`s.
    pub set_share: f64,
    /// Keys of one write: a `SET`, or a script if there are several.
    pub keys_per_write: usize,
    pub value_bytes: usize,
    /// Keys of one `MGET`.
    pub keys_per_read: usize,
    /// An `MGET` asks for random ones of this many newest keys.
    pub read_window: u64,
    /// Whether writes under load overwrite random ones of these newest keys, so that the data does not grow.
    pub rewrites: bool,
    pub lives: Lives,
}

/// The times to live of the keys, in seconds.
#[derive(Clone, Copy, Debug)]
pub enum Lives {
    /// Each between 0 and twice the mean.
    Even {
        mean: f64,
    },
    One {
        seconds: f64,
    },
}

impl Lives {
    pub fn of_new_key(self, random: &mut Rng) -> f64 {
        match self {
            Self::Even { mean } => random.f64() * 2.0 * mean,
            Self::One { seconds } => seconds,
        }
    }

    /// Returns how long a key that was written some time ago and is still there has left to live.
    pub fn left_of_earlier_key(self, random: &mut Rng) -> f64 {
        match self {
            // A key that lives long is met more often, at any time of its life. If lives are spread evenly, the
            // density of what is left of them falls linearly.
            Self::Even { mean } => (1.0 - random.f64().sqrt()) * 2.0 * mean,
            Self::One { seconds } => seconds * random.f64(),
        }
    }
}

pub struct Workload {
    mix: Mix,
    random: Rng,
    value: Vec<u8>,
    /// Keys set so far; the number of the next one.
    keys: u64,
    /// From this many keys on, writes overwrite the newest ones.
    most_keys: u64,
}

impl Workload {
    /// Begins a workload. It is always the same for the same mix.
    pub fn new(mix: Mix) -> Self {
        Self { random: Rng::with_seed(1), value: vec![b'v'; mix.value_bytes], keys: 0, most_keys: u64::MAX, mix }
    }

    pub fn request(&mut self, output: &mut Vec<u8>) {
        if self.random.f64() < self.mix.set_share {
            let life = self.mix.lives.of_new_key(&mut self.random);
            match self.mix.keys_per_write {
                0 | 1 if self.mix.rewrites || self.keys >= self.most_keys => {
                    let key = self.one_of_the_newest();
                    self.set(key, life, output);
                }
                0 | 1 => {
                    let key = self.new_key();
                    self.set(key, life, output);
                }
                keys => self.set_all(keys, life, output),
            }
        } else {
            self.read(output);
        }
    }

    /// Appends a `SET` of a new key with the time to live that a key written some time ago would have left.
    pub fn set_earlier(&mut self, output: &mut Vec<u8>) {
        let left = self.mix.lives.left_of_earlier_key(&mut self.random);
        let key = self.new_key();
        self.set(key, left, output);
    }

    /// Lets the data grow by this many keys, and no further.
    pub fn end_growth_after(&mut self, keys: u64) {
        self.most_keys = self.keys + keys;
    }

    fn set(&self, key: String, life: f64, output: &mut Vec<u8>) {
        let mut command = redis::cmd("SET");
        command.arg((key, &self.value[..], "PX", milliseconds(life)));
        command.write_packed_command(output);
    }

    fn set_all(&mut self, keys: usize, life: f64, output: &mut Vec<u8>) {
        let keys: Vec<String> = (0..keys).map(|_| self.new_key()).collect();
        let mut command = redis::cmd("EVAL");
        command.arg(SET_ALL).arg(keys.len()).arg(keys);
        command.arg((&self.value[..], milliseconds(life)));
        command.write_packed_command(output);
    }

    fn new_key(&mut self) -> String {
        self.keys += 1;
        key(self.keys - 1)
    }

    fn one_of_the_newest(&mut self) -> String {
        let window = self.mix.read_window.min(self.keys).max(1);
        key(self.keys.saturating_sub(1 + self.random.u64(..window)))
    }

    fn read(&mut self, output: &mut Vec<u8>) {
        let keys: Vec<String> = (0..self.mix.keys_per_read).map(|_| self.one_of_the_newest()).collect();
        redis::cmd("MGET").arg(keys).write_packed_command(output);
    }
}

fn milliseconds(seconds: f64) -> u64 {
    ((seconds * 1000.0).round() as u64).max(1)
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
        keys_per_write: 1,
        value_bytes: 10,
        keys_per_read: 3,
        read_window: 100,
        rewrites: false,
        lives: Lives::Even { mean: 60.0 },
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
                assert!(words[1..].iter().all(|key| *key >= oldest && *key <= newest));
            }
        }
        assert!((900..1100).contains(&sets), "{sets} SETs in 2,000 requests");
        Ok(())
    }

    #[test]
    fn of_an_even_spread_most_have_little_left() {
        let even = Lives::Even { mean: 60.0 };
        let mut random = Rng::with_seed(1);
        let left = (0..20_000).map(|_| even.left_of_earlier_key(&mut random));
        let first_half = left.filter(|left| *left < 60.0).count() as f64 / 20_000.0;
        assert!((0.73..0.77).contains(&first_half), "{first_half}");
    }
}
