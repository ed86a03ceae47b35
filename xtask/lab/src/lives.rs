//! How long keys live.

use fastrand::Rng;
use serde::Serialize;

/// The times to live of the keys, in seconds.
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
}

impl Lives {
    /// Returns how long keys live on average.
    pub fn mean(self) -> f64 {
        match self {
            Self::Even { mean } => mean,
            Self::One { seconds } => seconds,
        }
    }

    /// Returns how long a new key is to live.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_even_spread_most_have_little_left() {
        let even = Lives::Even { mean: 60.0 };
        let mut random = Rng::with_seed(1);
        let left = (0..20_000).map(|_| even.left_of_earlier_key(&mut random));
        let first_half = left.filter(|left| *left < 60.0).count() as f64 / 20_000.0;
        assert!((0.73..0.77).contains(&first_half), "{first_half}");
    }
}
