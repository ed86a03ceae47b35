//! Who may see the metrics: users and their passwords' bcrypt hashes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bcrypt::HashParts;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;

/// How many accepted passwords are remembered: bcrypt reads only 72 bytes, so many passwords of a user
/// are right.
const REMEMBERED: usize = 64;

/// The users.
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Accepted passwords are remembered under this key, so that memory shows no password.
    key: hmac::Key,
    /// Those that bcrypt has accepted. It takes a tenth of a second of CPU time, by design, and a
    /// scraper comes every few seconds with the same password.
    accepted: Mutex<HashSet<Vec<u8>>>,
    /// One password at a time: guessing must not take more than a core.
    turn: Arc<Semaphore>,
}

impl Users {
    /// Takes the hashes of the passwords by user; `None` if there are no users.
    ///
    /// # Errors
    ///
    /// Returns the first user whose hash is not one of bcrypt's.
    pub fn new(hashes: BTreeMap<String, String>) -> Result<Option<Self>, String> {
        if hashes.is_empty() {
            return Ok(None);
        }
        for (user, hash) in &hashes {
            hash.parse::<HashParts>().map_err(|_| user.clone())?;
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Some(Self {
            hashes,
            // Fails only if the kernel has no random numbers, and then TLS fails too.
            key: key.map_err(|_| "(the kernel gives no random numbers)".to_owned())?,
            accepted: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Tells whether this is the password of that user.
    pub async fn admit(&self, user: &str, password: &str) -> bool {
        let shown = format!("{user}\0{password}");
        let shown = hmac::sign(&self.key, shown.as_bytes()).as_ref().to_vec();
        if self.accepted().contains(&shown) {
            return true;
        }
        // It cannot fail: nobody closes it.
        let turn = self.turn.clone().acquire_owned().await;
        // Somebody with the same password may have been before.
        if self.accepted().contains(&shown) {
            return true;
        }
        // An unknown user takes as long as a wrong password, so that nobody learns the users' names.
        let known = self.hashes.get(user);
        let Some(hash) = known.or(self.hashes.values().next()).cloned() else {
            return false;
        };
        let password = password.to_owned();
        let verified = tokio::task::spawn_blocking(move || {
            // Kept until the work is done, also where nobody waits for the answer any more.
            let _turn = turn;
            bcrypt::verify(password, &hash)
        });
        let verified = matches!(verified.await, Ok(Ok(true)));
        let right = known.is_some() && verified;
        if right {
            let mut accepted = self.accepted();
            if accepted.len() >= REMEMBERED {
                accepted.clear();
            }
            accepted.insert(shown);
        }
        right
    }

    fn accepted(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        // A set of whole entries, even if a writer panicked.
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::Future as _;
    use std::task::{Context, Waker};

    use anyhow::Context as _;

    use super::Users;

    fn alice(hash: String) -> anyhow::Result<Users> {
        let users = Users::new(BTreeMap::from([("alice".to_owned(), hash)]));
        users.map_err(anyhow::Error::msg)?.context("no users")
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_user_is_accepted() -> anyhow::Result<()> {
        // As htpasswd writes it.
        let hash = bcrypt::hash_with_result("secret", 4)?.format_for_version(bcrypt::Version::TwoY);
        let users = alice(hash)?;
        for _ in 0..2 {
            assert!(users.admit("alice", "secret").await);
            assert!(!users.admit("alice", "secre").await);
            assert!(!users.admit("bob", "secret").await);
            assert!(!users.admit("alice\0secret", "").await);
            assert!(!users.admit("", "").await);
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_scraper_costs_one_hash_only() -> anyhow::Result<()> {
        let mut users = alice(bcrypt::hash("secret", 4)?)?;
        assert!(users.admit("alice", "secret").await);
        // Were its hash computed again, it would be wrong by now.
        let other = bcrypt::hash("other", 4)?;
        users.hashes.insert("alice".to_owned(), other);
        assert!(users.admit("alice", "secret").await);
        Ok(())
    }

    #[test]
    fn one_hash_is_computed_at_a_time_whoever_asks() -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()?;
        let _entered = runtime.enter();
        let users = alice(bcrypt::hash("secret", 4)?)?;
        let (release, released) = std::sync::mpsc::channel();
        // No hash can be computed meanwhile.
        runtime.spawn_blocking(move || released.recv());
        let mut context = Context::from_waker(Waker::noop());
        let mut begins = |user| {
            let mut asked = Box::pin(users.admit(user, "wrong"));
            asked.as_mut().poll(&mut context).is_pending()
        };
        assert!(begins("bob"), "is told at once that nobody has that name");
        // This client has gone, and its hash is still to be computed.
        assert_eq!(users.turn.available_permits(), 0);
        assert!(begins("alice"), "does not wait for its turn");
        release.send(())?;
        assert!(runtime.block_on(users.admit("alice", "secret")));
        Ok(())
    }

    #[test]
    fn a_password_that_is_not_hashed_is_refused() {
        for wrong in ["secret", "", "$2y$10$short", "$1$abc$def"] {
            let users = BTreeMap::from([("alice".to_owned(), wrong.to_owned())]);
            let refused = Users::new(users).is_err_and(|user| user == "alice");
            assert!(refused, "{wrong}");
        }
        assert!(matches!(Users::new(BTreeMap::new()), Ok(None)));
    }
}
