//! The most that the probes may cost a server.

use std::str::FromStr;

/// The share of a server's main thread that the probes may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadBudget(pub(super) f64);

/// The budget cannot be understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a share of the main thread from 0% to 100%: write 1% or 0.01, for example")]
pub struct BudgetError;

impl FromStr for OverheadBudget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let text = text.trim();
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let share = match text.strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| percent / 100.0),
            // "1" may mean 1 % or all of it.
            None => number(text).filter(|share| *share < 1.0),
        };
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or(BudgetError)
    }
}

impl OverheadBudget {
    /// Returns the share; 1 is all of the thread's time.
    pub fn share(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{BudgetError, OverheadBudget};

    #[test]
    fn a_budget_is_a_percentage_or_a_share() {
        for (text, share) in [("1%", 0.01), ("0.01", 0.01), ("0%", 0.0), (" 2.5 % ", 0.025), ("100%", 1.0)] {
            assert_eq!(text.parse(), Ok(OverheadBudget(share)), "{text}");
        }
        for text in ["1", "-1%", "101%", "NaN", "nan%", "inf", "", "%", "one"] {
            assert_eq!(text.parse::<OverheadBudget>(), Err(BudgetError), "{text}");
        }
    }
}
