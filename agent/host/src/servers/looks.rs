//! Looks at processes in threads, because a look may never end.
//!
//! What `/proc/PID/cmdline` shows is in the memory of the process. Reading it takes the lock of that memory, which the
//! process may hold for as long as it likes, and may wait for a file system in user space. Nothing ends such a read
//! from outside.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use procfs::process::Process;

/// How long the search waits for a look, less the more are late. Its answer is taken later, if it comes.
const PATIENCE: Duration = Duration::from_millis(100);
/// The most looks that are late, and how many may be so at the processes of one user when one more begins at a process
/// that has a server's name, or none: each has a thread. What hangs without such a name hides no server of the same
/// user.
const MOST: usize = 64;
pub(super) const MOST_NAMED: usize = 16;
pub(super) const MOST_OTHERS: usize = 2;

/// Looks at processes, some of which are late.
#[derive(Debug)]
pub(super) struct Looks<T> {
    idle: Option<Worker>,
    late: HashMap<u32, Late<T>>,
}

/// A thread that does one thing after the other.
#[derive(Debug)]
struct Worker(SyncSender<Box<dyn FnOnce() + Send>>);

/// A look that has not ended in time.
#[derive(Debug)]
struct Late<T> {
    worker: Worker,
    answer: Receiver<T>,
    /// The answer, once it has come.
    came: Option<T>,
    /// Whose process it is; `None` if that is not known.
    user: Option<u32>,
    begun: Instant,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self { idle: None, late: HashMap::new() }
    }
}

impl<T: Send + 'static> Looks<T> {
    /// Looks at a process. Returns `None` if that takes long: call this again later. Does not begin if too many looks
    /// are late: `most` at processes of the same user.
    pub(super) fn at(&mut self, pid: u32, most: usize, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if let Some(late) = self.late.get_mut(&pid) {
            let answer = late.answer()?;
            self.idle = self.late.remove(&pid).map(|late| late.worker);
            return Some(answer);
        }
        if self.has_enough_of(pid, most) {
            return None;
        }
        let worker = self.idle.take().or_else(Worker::start)?;
        let (to, answer) = sync_channel(1);
        let look = Box::new(move || {
            // Nobody may want it any more.
            let _ = to.send(look());
        });
        worker.0.send(look).ok()?;
        let begun = Instant::now();
        let patience = PATIENCE / (1 + self.late.len() as u32);
        if let Ok(answer) = answer.recv_timeout(patience) {
            self.idle = Some(worker);
            return Some(answer);
        }
        let user = user_of(pid);
        let late = Late { worker, answer, came: None, user, begun };
        self.late.insert(pid, late);
        None
    }

    /// Returns whether no more looks at the processes of the user of this one may be late.
    fn has_enough_of(&self, pid: u32, most: usize) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let user = user_of(pid);
        let of_user = self.late.values().filter(|late| late.user == user);
        self.late.len() >= MOST || of_user.count() >= most
    }

    /// Returns whether a look at this process was late, and its answer has come.
    pub(super) fn has_answer(&self, pid: u32) -> bool {
        self.late.get(&pid).is_some_and(|late| late.came.is_some())
    }

    /// Returns the processes at which a look has been late for `time` or longer, and still is.
    pub(super) fn late_for(&self, time: Duration) -> impl Iterator<Item = u32> {
        let is_late = move |late: &Late<T>| late.came.is_none() && late.begun.elapsed() >= time;
        let late = self.late.iter().filter(move |(_, late)| is_late(late));
        late.map(|(pid, _)| *pid)
    }

    /// Takes the answers that have come, and forgets those about processes that have ended. `pids` are all processes,
    /// ascending.
    pub(super) fn take_answers(&mut self, pids: &[u32]) {
        self.late.retain(|pid, late| {
            late.came = late.answer();
            pids.binary_search(pid).is_ok() || late.came.is_none()
        });
    }
}

impl<T> Late<T> {
    fn answer(&mut self) -> Option<T> {
        self.came.take().or_else(|| self.answer.try_recv().ok())
    }
}

impl Worker {
    fn start() -> Option<Self> {
        let (to, work) = sync_channel::<Box<dyn FnOnce() + Send>>(1);
        let thread = std::thread::Builder::new().name("look".to_owned());
        let started = thread.spawn(move || work.into_iter().for_each(|look| look()));
        // Without a thread, the look is made when there are more.
        started.is_ok().then_some(Self(to))
    }
}

/// Returns the user of a process, which needs no lock of it.
pub(super) fn user_of(pid: u32) -> Option<u32> {
    Some(Process::new(pid.cast_signed()).ok()?.status().ok()?.euid)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::{Looks, MOST_NAMED, MOST_OTHERS};

    #[test]
    fn a_look_that_does_not_end_is_left_alone_and_its_answer_taken_later() {
        let mut looks = Looks::default();
        let (end, hangs) = channel::<()>();
        let own = std::process::id();
        assert_eq!(looks.at(own, 2, move || hangs.recv().is_err()), None);
        assert_eq!(looks.at(own, 2, || unreachable!("it is under way")), None);
        assert_eq!(looks.late_for(Duration::ZERO).collect::<Vec<_>>(), [own]);
        assert_eq!(looks.at(1, 2, || false), Some(false));
        drop(end);
        while !looks.has_answer(own) {
            looks.take_answers(&[own]);
        }
        // Nobody has asked for it since, but it is late no more.
        assert_eq!(looks.late_for(Duration::ZERO).count(), 0);
        assert_eq!(looks.at(own, 2, || unreachable!("it has been")), Some(true));
        assert_eq!(looks.late_for(Duration::ZERO).count(), 0);
    }

    #[test]
    fn one_user_takes_few_threads() {
        let mut looks = Looks::default();
        let (end, _) = std::sync::mpsc::sync_channel::<()>(0);
        let mut ends = vec![end];
        // These are all of no user.
        let none = u32::MAX / 2;
        for pid in 0..MOST_OTHERS as u32 {
            let (end, hangs) = channel::<()>();
            assert_eq!(looks.at(none + pid, MOST_OTHERS, move || hangs.recv().is_ok()), None);
            ends.push(std::sync::mpsc::sync_channel(0).0);
            std::mem::forget(end);
        }
        assert_eq!(looks.at(none - 1, MOST_OTHERS, || unreachable!("there are enough")), None);
        assert_eq!(looks.at(none - 1, MOST_NAMED, || true), Some(true));
        assert_eq!(looks.at(std::process::id(), MOST_OTHERS, || true), Some(true));
    }
}
