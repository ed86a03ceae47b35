//! Who may see the metrics: users and their passwords' bcrypt hashes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bcrypt::HashParts;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// How many accepted passwords are remembered: bcrypt reads only 72 bytes, so a user has many right passwords.
const REMEMBERED: usize = 64;

pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Accepted passwords are remembered under this key, so that memory shows no password.
    key: hmac::Key,
    /// The passwords that bcrypt has accepted. It takes a tenth of a second of CPU time, by design, and a scraper comes
    /// every few seconds with the same password.
    accepted: Mutex<HashSet<Vec<u8>>>,
    /// One hash is computed at a time: guessing must not take more than a core.
    turn: Arc<Semaphore>,
}

impl Users {
    /// Takes the hashes of the passwords by user; `None` if there are no users. Fails with the name of the first user
    /// whose hash is not one of bcrypt's.
    pub fn new(hashes: BTreeMap<String, String>) -> Result<Option<Self>, String> {
        if hashes.is_empty() {
            return Ok(None);
        }
        for (user, hash) in &hashes {
            hash.parse::<HashParts>()
                .map_err(|_| format!("{user}: not a bcrypt hash; `htpasswd -nBC 10 {user}` makes one"))?;
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Some(Self {
            hashes,
            // Fails only if the kernel has no random numbers, and then TLS fails too.
            key: key.map_err(|_| "the kernel gives no random numbers".to_owned())?,
            accepted: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Returns whether this is the password of that user.
    pub async fn admit(&self, user: &str, password: &str) -> bool {
        let shown = format!("{user}\0{password}");
        let shown = hmac::sign(&self.key, shown.as_bytes()).as_ref().to_vec();
        if self.accepted().contains(&shown) {
            return true;
        }
        // An unknown user takes as long as a wrong password, so that nobody learns the users' names.
        let known = self.hashes.get(user);
        let Some(hash) = known.or(self.hashes.values().next()).cloned() else { return false };
        // A client that goes before its turn costs nothing. Nobody closes the semaphore, so it cannot fail.
        let turn = self.turn.clone().acquire_owned().await;
        let password = password.to_owned();
        let is_same = spawn_blocking(move || {
            // Kept until the hash is computed, even if the client has gone.
            let _turn = turn;
            bcrypt::verify(password, &hash).unwrap_or(false)
        });
        let right = is_same.await.unwrap_or(false) && known.is_some();
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
    use std::time::Duration;

    use anyhow::Context as _;
    use tokio::time::timeout;

    use super::Users;

    fn alice(hash: String) -> anyhow::Result<Users> {
        let users = Users::new(BTreeMap::from([("alice".to_owned(), hash)]));
        users.map_err(anyhow::Error::msg)?.context("no users")
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_user_is_accepted() -> anyhow::Result<()> {
        // As htpasswd writes it.
        let users = alice(bcrypt::hash_with_result("secret", 4)?.format_for_version(bcrypt::Version::TwoY))?;
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
        // If its hash were computed again, the password would be wrong by now.
        let other = bcrypt::hash("other", 4)?;
        users.hashes.insert("alice".to_owned(), other);
        assert!(users.admit("alice", "secret").await);
        Ok(())
    }

    #[tokio::test]
    async fn an_unknown_user_waits_for_a_hash_as_a_known_one_does() -> anyhow::Result<()> {
        let users = alice(bcrypt::hash("secret", 4)?)?;
        let others_turn = users.turn.clone().acquire_owned().await?;
        for user in ["alice", "bob"] {
            let admitted = timeout(Duration::from_millis(50), users.admit(user, "secret"));
            assert!(admitted.await.is_err(), "{user}");
        }
        drop(others_turn);
        assert!(users.admit("alice", "secret").await && !users.admit("bob", "secret").await);
        Ok(())
    }

    #[test]
    fn a_password_that_is_not_hashed_is_refused() {
        for wrong in ["secret", "", "$2y$10$short", "$1$abc$def"] {
            let users = BTreeMap::from([("alice".to_owned(), wrong.to_owned())]);
            assert!(Users::new(users).is_err_and(|why| why.starts_with("alice: ")), "{wrong}");
        }
        assert!(matches!(Users::new(BTreeMap::new()), Ok(None)));
    }
}
