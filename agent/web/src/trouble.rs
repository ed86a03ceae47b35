//! Logs what goes wrong again and again when it begins and when it is over, and not in between.

use std::future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How long nothing must have gone wrong until it is over.
const CALM: Duration = Duration::from_secs(60);

/// Something that may go wrong again and again.
#[derive(Debug, Default)]
pub struct Trouble {
    /// When it last went wrong, until that is over.
    last: Option<Instant>,
}

impl Trouble {
    /// Takes note that it went wrong just now, and tells whether this is the first time.
    pub fn begins(&mut self) -> bool {
        self.last.replace(Instant::now()).is_none()
    }

    /// Waits until it has not gone wrong for a minute; for ever, if it has not gone wrong at all.
    pub async fn ends(&mut self) {
        match self.last {
            Some(last) => sleep_until(last + CALM).await,
            None => future::pending().await,
        }
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{CALM, Trouble};

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn it_begins_once_and_ends_when_it_has_not_come_back() {
        let mut trouble = Trouble::default();
        assert!(timeout(SOON, trouble.ends()).await.is_err(), "never began");
        assert!(trouble.begins());
        assert!(!trouble.begins());
        assert!(timeout(SOON, trouble.ends()).await.is_err(), "just began");
        assert!(!trouble.begins());
        trouble.last = Instant::now().checked_sub(CALM);
        assert!(timeout(SOON, trouble.ends()).await.is_ok());
        assert!(trouble.begins());
    }
}
