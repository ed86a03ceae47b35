//! Looks at processes in threads, because a look may never end, and rarely at those that are slow to look at, which
//! would take the time of all others.
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
        if let Ok(answer) = answer.recv_timeout(PATIENCE / (1 + self.late.len() as u32)) {
            self.idle = Some(worker);
            return Some(answer);
        }
        self.late.insert(pid, Late { worker, answer, came: None, user: user_of(pid), begun });
        None
    }

    /// Returns whether no more looks at the processes of the user of this one may be late.
    fn has_enough_of(&self, pid: u32, most: usize) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let user = user_of(pid);
        self.late.len() >= MOST || self.late.values().filter(|late| late.user == user).count() >= most
    }

    /// Returns whether a look at this process was late, and its answer has come.
    pub(super) fn has_answer(&self, pid: u32) -> bool {
        self.late.get(&pid).is_some_and(|late| late.came.is_some())
    }

    /// Returns the processes at which a look has been late for `time` or longer, and still is.
    pub(super) fn late_for(&self, time: Duration) -> impl Iterator<Item = u32> {
        let late = self.late.iter().filter(move |(_, late)| late.came.is_none() && late.begun.elapsed() >= time);
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
        let turn = move || work.into_iter().for_each(|look| look());
        let started = std::thread::Builder::new().name("look".to_owned()).spawn(turn);
        // Without a thread, the look is made when there are more.
        started.is_ok().then_some(Self(to))
    }
}

/// Returns the user of a process, which needs no lock of it.
pub(super) fn user_of(pid: u32) -> Option<u32> {
    Some(Process::new(pid.cast_signed()).ok()?.status().ok()?.euid)
}

/// A look that takes longer is slow. Most take some ten microseconds.
const SLOW: Duration = Duration::from_millis(20);

/// After a slow look, a process is left alone for this many times as long: no process takes more than a tenth
/// of a scanner's time.
const REST: u32 = 10;

/// How long after that it comes last.
const LAST: Duration = Duration::from_secs(60);

/// Until when to leave slow processes alone, by pid.
#[derive(Debug, Default)]
pub(super) struct Slow(HashMap<u32, Instant>);

impl Slow {
    pub(super) fn rests(&self, pid: u32, now: Instant) -> bool {
        self.0.get(&pid).is_some_and(|until| now < *until)
    }

    pub(super) fn resting(&self, now: Instant) -> impl Iterator<Item = u32> {
        self.0.iter().filter(move |(_, until)| now < **until).map(|(pid, _)| *pid)
    }

    /// Returns by what to sort processes: those that were slow come last, and of these the one that was looked at last.
    pub(super) fn rank(&self, pid: u32) -> Option<Instant> {
        self.0.get(&pid).copied()
    }

    pub(super) fn looked(&mut self, pid: u32, took: Duration, now: Instant) {
        if took > SLOW {
            tracing::debug!(pid, ?took, "this process is slow to look at");
            self.0.insert(pid, now + took.saturating_mul(REST));
        }
    }

    /// Forgets the processes that were not slow of late.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, until| now < *until + LAST);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::{Looks, MOST_NAMED, MOST_OTHERS, Slow};

    #[test]
    fn a_look_that_does_not_end_is_left_alone_and_its_answer_taken_later() {
        let mut looks = Looks::default();
        let (end, hangs) = channel::<()>();
        let pid = std::process::id();
        assert_eq!(looks.at(pid, 2, move || hangs.recv().is_err()), None);
        assert_eq!(looks.at(pid, 2, || unreachable!("it is under way")), None);
        assert_eq!(looks.late_for(Duration::ZERO).collect::<Vec<_>>(), [pid]);
        assert_eq!(looks.at(1, 2, || false), Some(false));
        drop(end);
        while !looks.has_answer(pid) {
            looks.take_answers(&[pid]);
        }
        // Nobody has asked for it since, but it is late no more.
        assert_eq!(looks.late_for(Duration::ZERO).count(), 0);
        assert_eq!(looks.at(pid, 2, || unreachable!("it has been")), Some(true));
        assert_eq!(looks.late_for(Duration::ZERO).count(), 0);
    }

    #[test]
    fn one_user_takes_few_threads() {
        let mut looks = Looks::default();
        let mut ends = Vec::new();
        // These are all of no user.
        let none = u32::MAX / 2;
        for pid in 0..MOST_OTHERS as u32 {
            let (end, hangs) = channel::<()>();
            assert_eq!(looks.at(none + pid, MOST_OTHERS, move || hangs.recv().is_ok()), None);
            ends.push(end);
        }
        assert_eq!(looks.at(none - 1, MOST_OTHERS, || unreachable!("there are enough")), None);
        assert_eq!(looks.at(none - 1, MOST_NAMED, || true), Some(true));
        assert_eq!(looks.at(std::process::id(), MOST_OTHERS, || true), Some(true));
    }

    #[test]
    fn a_slow_process_is_left_alone_for_a_while_and_no_other_is() {
        let (mut slow, start) = (Slow::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        slow.looked(1, Duration::from_secs(2), start);
        slow.looked(2, Duration::from_millis(2), start);
        for (second, rests) in [(1, true), (19, true), (20, false)] {
            slow.forget(at(second));
            assert_eq!(slow.rests(1, at(second)), rests, "{second} s later");
            assert!(!slow.rests(2, at(second)));
        }
        assert!(slow.rank(2) < slow.rank(1));
        slow.forget(at(80));
        assert!(slow.0.is_empty());
    }
}
