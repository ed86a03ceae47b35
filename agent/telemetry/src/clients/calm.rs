//! When a server does so little that only its main thread need be read.

use std::time::Duration;

use super::look_pace::INTERVAL;
use crate::ThreadReading;

/// A server that has used at most this much CPU time since everything was last read has done nothing worth reading. Its
/// cron takes some 1 ms a second.
const LITTLE_NS: u64 = 2_000_000;

/// Decides at which readings of a server everything is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// When everything was last read, and the main thread's CPU time then.
    last: Option<(Duration, u64)>,
}

impl Calm {
    /// Returns whether a reading of the main thread shows that the server is calm: the thread sleeps in its event loop,
    /// and has hardly run since everything was last read.
    pub fn is_calm(&self, now: &ThreadReading) -> bool {
        let hardly_ran = |before_ns| now.times.cpu_ns.saturating_sub(before_ns) <= LITTLE_NS;
        now.is_resting == Some(true) && self.last.is_some_and(|(_, before_ns)| hardly_ran(before_ns))
    }

    /// Returns whether everything must be read: the server is not calm, or everything was last read a second ago.
    pub fn is_due(&self, now: &ThreadReading) -> bool {
        let is_old = |at| now.at.saturating_sub(at) >= INTERVAL;
        !self.is_calm(now) || self.last.is_some_and(|(at, _)| is_old(at))
    }

    /// Notes that everything is read with this reading.
    pub fn read_all(&mut self, now: &ThreadReading) {
        self.last = Some((now.at, now.times.cpu_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Calm;
    use crate::{ThreadReading, ThreadTimes};

    /// Returns at which tenths of a second everything is read, for a thread that is read every 100 ms for 2 s and uses
    /// `us` microseconds of CPU time each time.
    fn read(us: u64, is_resting: Option<bool>) -> Vec<u64> {
        let mut calm = Calm::default();
        let tenths = 0..=20;
        let whole = tenths.filter(|tenth| {
            let reading = ThreadReading {
                at: Duration::from_millis(tenth * 100),
                times: ThreadTimes { cpu_ns: tenth * us * 1_000, waiting_ns: 0 },
                is_resting,
                sleeps: None,
            };
            let is_due = calm.is_due(&reading);
            if is_due {
                calm.read_all(&reading);
            }
            is_due
        });
        whole.collect()
    }

    #[test]
    fn a_server_that_only_has_its_cron_is_read_once_a_second() {
        assert_eq!(read(80, Some(true)), [0, 10, 20]);
    }

    #[test]
    fn one_that_works_or_does_not_rest_is_read_each_time() {
        assert_eq!(read(2_100, Some(true)).len(), 21);
        assert_eq!(read(0, None).len(), 21);
        assert_eq!(read(0, Some(false)).len(), 21);
    }
}
