//! How long keys live.

use std::fmt;

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;

/// The times to live of the keys, in seconds. A key whose time is infinite gets none.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "lives", rename_all = "snake_case")]
pub enum Lives {
    /// Each between 0 and twice the mean.
    Even {
        /// The mean.
        mean: f64,
    },
    /// All the same.
    One {
        /// This long.
        seconds: f64,
    },
    /// As many keys of one time to live are written as of the other.
    Two {
        /// The one.
        short: f64,
        /// The other.
        long: f64,
    },
}

/// The times to live that the scenario `expire` can give its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ttls {
    /// 5 s for all keys
    One,
    /// 3 s for half of the keys written, 15 s for the others
    Two,
    /// 5 s for half of the keys written, none for the others
    Half,
}

impl Ttls {
    /// Returns the lives of the keys.
    pub fn lives(self) -> Lives {
        match self {
            Self::One => Lives::One { seconds: 5.0 },
            Self::Two => Lives::Two {
                short: 3.0,
                long: 15.0,
            },
            Self::Half => Lives::Two {
                short: 5.0,
                long: f64::INFINITY,
            },
        }
    }
}

impl Lives {
    /// Returns how long a new key is to live, or `None` for ever.
    pub fn of_new_key(self, random: &mut Rng) -> Option<f64> {
        let seconds = match self {
            Self::Even { mean } => random.f64() * 2.0 * mean,
            Self::One { seconds } => seconds,
            Self::Two { short, long } => *random.choice([&short, &long]).unwrap_or(&short),
        };
        Some(seconds).filter(|seconds| seconds.is_finite())
    }

    /// Returns how long a key that was written some time ago and is still there has left to live, or `None` for ever.
    pub fn left_of_earlier_key(self, random: &mut Rng) -> Option<f64> {
        let life = match self {
            // A key that lives long is seen more often, at any time of its life. Where lives are spread evenly,
            // the density of what is left of them falls linearly.
            Self::Even { mean } => {
                return Some((1.0 - random.f64().sqrt()) * 2.0 * mean);
            }
            // Of the keys that live for ever, there are as many as were written. Of the others, as many as that takes.
            Self::Two { short, long } if long.is_finite() => {
                let is_long = random.f64() * (short + long) < long;
                Some(if is_long { long } else { short })
            }
            Self::One { .. } | Self::Two { .. } => self.of_new_key(random),
        };
        life.map(|life| life * random.f64())
    }
}

impl fmt::Display for Lives {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even { mean } => write!(text, "{mean:.0} s on average"),
            Self::One { seconds } => write!(text, "{seconds:.0} s"),
            Self::Two { short, long } if long.is_finite() => {
                write!(text, "{short:.0} or {long:.0} s")
            }
            Self::Two { short, .. } => write!(text, "{short:.0} s or for ever"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 20_000;

    fn drawn(mut life: impl FnMut(&mut Rng) -> Option<f64>) -> Vec<Option<f64>> {
        let mut random = Rng::with_seed(1);
        (0..DRAWN).map(|_| life(&mut random)).collect()
    }

    fn share(lives: &[Option<f64>], is: impl Fn(Option<f64>) -> bool) -> f64 {
        lives.iter().filter(|life| is(**life)).count() as f64 / lives.len() as f64
    }

    #[test]
    fn as_many_keys_of_one_life_are_written_as_of_the_other() {
        let half = drawn(|random| Ttls::Half.lives().of_new_key(random));
        let for_ever = share(&half, |life| life.is_none());
        assert!((0.48..0.52).contains(&for_ever), "{for_ever}");
        assert!(half.iter().flatten().all(|life| *life == 5.0));
    }

    #[test]
    fn of_the_keys_that_are_there_more_live_long() {
        let two = drawn(|random| Ttls::Two.lives().left_of_earlier_key(random));
        // Of 6 keys, 5 live for 15 s, and 4 of these have more than 3 s left.
        let long = share(&two, |life| life.is_some_and(|life| life > 3.0));
        assert!((0.65..0.69).contains(&long), "{long}");
    }

    #[test]
    fn of_an_even_spread_most_have_little_left() {
        let even = Lives::Even { mean: 60.0 };
        let left = drawn(|random| even.left_of_earlier_key(random));
        let first_half = share(&left, |life| life.is_some_and(|life| life < 60.0));
        assert!((0.73..0.77).contains(&first_half), "{first_half}");
    }
}
