//! The clients' requests: writes of new keys, and `MGET`s of many of the newest ones.

use std::io::Write as _;

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
    /// The longest time to live of a key, in seconds.
    pub longest_life: f64,
    /// Whether lives are spread evenly up to that, instead of all being that long.
    pub lives_differ: bool,
}

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
        Self { random: Rng::with_seed(1), value: vec![b'v'; mix.value_bytes], keys: 0, mix }
    }

    pub fn request(&mut self, output: &mut Vec<u8>) {
        if self.random.f64() >= self.mix.set_share {
            command(output, "MGET", self.mix.keys_per_read);
            for _ in 0..self.mix.keys_per_read {
                let key = self.one_of_the_newest();
                write_key(output, key);
            }
            return;
        }
        let share = if self.mix.lives_differ { self.random.f64() } else { 1.0 };
        let life = ((share * self.mix.longest_life * 1000.0).round() as u64).max(1).to_string();
        if self.mix.keys_per_write > 1 {
            let keys = self.mix.keys_per_write;
            command(output, "EVAL", keys + 4);
            word(output, SET_ALL.as_bytes());
            word(output, keys.to_string().as_bytes());
            let first = self.new_keys(keys as u64);
            (first..self.keys).for_each(|key| write_key(output, key));
            word(output, &self.value);
        } else {
            let key = if self.mix.rewrites { self.one_of_the_newest() } else { self.new_keys(1) };
            command(output, "SET", 4);
            write_key(output, key);
            word(output, &self.value);
            word(output, b"PX");
        }
        word(output, life.as_bytes());
    }

    /// Counts keys as set, and returns the number of the first.
    pub fn new_keys(&mut self, keys: u64) -> u64 {
        self.keys += keys;
        self.keys - keys
    }

    fn one_of_the_newest(&mut self) -> u64 {
        let window = self.mix.read_window.min(self.keys).max(1);
        self.keys.saturating_sub(1 + self.random.u64(..window))
    }
}

/// Appends the beginning of a command with this many arguments.
fn command(output: &mut Vec<u8>, name: &str, arguments: usize) {
    // Nothing can fail here: the vector grows.
    let _ = write!(output, "*{}\r\n${}\r\n{name}\r\n", arguments + 1, name.len());
}

fn word(output: &mut Vec<u8>, word: &[u8]) {
    let _ = write!(output, "${}\r\n", word.len());
    output.extend_from_slice(word);
    output.extend_from_slice(b"\r\n");
}

fn write_key(output: &mut Vec<u8>, number: u64) {
    let _ = write!(output, "$14\r\nkey:{number:010}\r\n");
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
        longest_life: 120.0,
        lives_differ: true,
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
        let key = |number: u64| format!("key:{number:010}");
        let mut workload = Workload::new(MIX);
        let mut sets: u64 = 0;
        for _ in 0..2000 {
            let mut output = Vec::new();
            workload.request(&mut output);
            let words = words(&output)?;
            if words[0] == "SET" {
                assert_eq!((&words[1], words[2].len()), (&key(sets), 10));
                assert!((1..=120_000).contains(&words[4].parse::<u64>()?));
                sets += 1;
            } else {
                let (oldest, newest) = (key(sets.saturating_sub(100)), key(sets.saturating_sub(1)));
                assert_eq!(words.len(), 4);
                assert!(words[1..].iter().all(|key| *key >= oldest && *key <= newest));
            }
        }
        assert!((900..1100).contains(&sets), "{sets} SETs in 2,000 requests");
        let mut output = Vec::new();
        Workload::new(Mix { set_share: 1.0, keys_per_write: 3, lives_differ: false, ..MIX }).request(&mut output);
        assert_eq!(words(&output)?[2..], ["3", &key(0), &key(1), &key(2), "vvvvvvvvvv", "120000"]);
        Ok(())
    }
}
