//! Who may see the metrics: users and their passwords' bcrypt hashes.

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::{self, Sender};
use std::{io, thread};

use bcrypt::HashParts;
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::oneshot;

/// How many accepted passwords are remembered: bcrypt reads only 72 bytes, so a user has many right passwords.
const REMEMBERED: usize = 64;

pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Accepted passwords are remembered under this key, so that memory shows no password.
    key: hmac::Key,
    /// The passwords that bcrypt has accepted. It takes a tenth of a second of CPU time, by design, and a scraper comes
    /// every few seconds with the same password.
    accepted: Mutex<HashSet<Vec<u8>>>,
    /// Leads to the one thread that computes hashes: guessing must not take more than a core. It starts with the first
    /// question, because the agent gives up capabilities after it has read its configuration.
    questions: Mutex<Option<Sender<Question>>>,
}

/// Whether a password has this hash.
struct Question {
    password: String,
    hash: String,
    answer: oneshot::Sender<bool>,
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
            questions: Mutex::default(),
        }))
    }

    /// Returns whether this is the password of that user.
    pub async fn admit(&self, user: &str, password: &str) -> bool {
        let shown = format!("{user}\0{password}");
        let shown = hmac::sign(&self.key, shown.as_bytes()).as_ref().to_vec();
        if self.accepted.lock().contains(&shown) {
            return true;
        }
        // An unknown user takes as long as a wrong password, so that nobody learns the users' names.
        let known = self.hashes.get(user);
        let Some(hash) = known.or(self.hashes.values().next()).cloned() else { return false };
        let (answer, answered) = oneshot::channel();
        let question = Question { password: password.to_owned(), hash, answer };
        let is_same = self.ask(question) && answered.await == Ok(true);
        let right = known.is_some() && is_same;
        if right {
            let mut accepted = self.accepted.lock();
            if accepted.len() >= REMEMBERED {
                accepted.clear();
            }
            accepted.insert(shown);
        }
        right
    }

    /// Hands a question to the thread; returns whether there is a thread.
    fn ask(&self, question: Question) -> bool {
        let mut questions = self.questions.lock();
        if questions.is_none() {
            *questions =
                start().inspect_err(|error| tracing::debug!("cannot start the thread for passwords: {error}")).ok();
        }
        questions.as_ref().is_some_and(|questions| questions.send(question).is_ok())
    }
}

/// Starts a thread that answers one question after another, as long as anybody may ask.
fn start() -> io::Result<Sender<Question>> {
    let (questions, asked) = mpsc::channel::<Question>();
    let answers = move || {
        for question in asked {
            // A client that has gone costs nothing.
            if !question.answer.is_closed() {
                let is_same = bcrypt::verify(question.password, &question.hash);
                let _ = question.answer.send(is_same.unwrap_or(false));
            }
        }
    };
    thread::Builder::new().name("passwords".to_owned()).spawn(answers)?;
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::Future as _;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use anyhow::Context as _;
    use parking_lot::Mutex;

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

    #[test]
    fn an_unknown_user_waits_for_a_hash_as_a_known_one_does() -> anyhow::Result<()> {
        let (questions, asked) = mpsc::channel();
        let mut users = alice(bcrypt::hash("secret", 4)?)?;
        users.questions = Mutex::new(Some(questions));
        let mut context = Context::from_waker(Waker::noop());
        for user in ["alice", "bob"] {
            let mut admitted = Box::pin(users.admit(user, "secret"));
            assert!(admitted.as_mut().poll(&mut context).is_pending(), "{user}");
            let question = asked.try_recv()?;
            let answer = bcrypt::verify(question.password, &question.hash)?;
            assert_eq!(question.answer.send(answer), Ok(()));
            let is_admitted = admitted.as_mut().poll(&mut context);
            assert_eq!(is_admitted, Poll::Ready(user == "alice"), "{user}");
        }
        let mut gone = Box::pin(users.admit("bob", "secret"));
        assert!(gone.as_mut().poll(&mut context).is_pending());
        drop(gone);
        assert!(asked.try_recv()?.answer.is_closed());
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
