//! Tells when something that goes wrong again and again is worth a line in the log.

use std::time::{Duration, Instant};

/// How long nothing must go wrong until it is over.
const CALM: Duration = Duration::from_secs(60);

/// Something that may go wrong again and again.
#[derive(Debug, Default)]
pub struct Trouble {
    /// When it last went wrong.
    last: Option<Instant>,
}

impl Trouble {
    /// Notes that it has just gone wrong, and returns whether it had not for a minute.
    pub fn begins(&mut self) -> bool {
        let last = self.last.replace(Instant::now());
        last.is_none_or(|last| last.elapsed() > CALM)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{CALM, Trouble};

    #[test]
    fn it_begins_once_and_again_after_a_minute_of_calm() {
        let mut trouble = Trouble::default();
        assert!(trouble.begins());
        assert!(!trouble.begins());
        trouble.last = Instant::now().checked_sub(2 * CALM);
        assert!(trouble.begins());
    }
}
