//! The profiles that are taken of a server: for its records, and on request.
//!
//! A profile for records begins with the first tenth of a second in which the server is stalled, or in an evicting call
//! that has gone on for a hundredth, and not with the first evicting call: a cache that evicts calmly, even all the
//! time, has no stall, and so no profile. It ends with the burst and its reclaim, or a while after the stall; at the
//! latest after [`LONGEST`], and before a record is made, which gets it. There is one for each burst, and one every
//! [`AGAIN`] while a stall does not end.
//!
//! All times are monotonic.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use evictscope_host::{Executable, ServerProcess};
use evictscope_records::NoProfile;
use evictscope_records::profile::Profile;
use tokio::sync::oneshot;

use super::occasions::WantedRecord;
use crate::clock::since_1970;
use crate::profile::{Profiler, Profiling};

/// Samples in each second of CPU time: not a divisor of the server's own timers.
const HZ: u32 = 49;
const LONGEST: Duration = Duration::from_secs(300);
/// The least time from the start of one to the start of the next.
const AGAIN: Duration = Duration::from_secs(600);
/// The most profiles to keep, for later records.
const KEPT: usize = 8;
/// A profile without a burst ends when the server has not been stalled for this long. It has missed the beginning of
/// its stall, perhaps most of it; if the next stall comes within this time, the profile has all of that.
const GAP: Duration = Duration::from_secs(10);
/// The most profiles that may be taken on request at the same time.
const ASKED: usize = 4;

/// What to profile.
pub struct Subject {
    /// Takes the profiles, or why none can be taken.
    pub profiler: Result<Profiler, NoProfile>,
    pub process: ServerProcess,
    pub executable: Arc<Executable>,
}

impl Subject {
    fn begin(&self, hz: u32) -> Result<Profiling, NoProfile> {
        self.profiler.as_ref().map_err(Clone::clone)?.begin(&self.process, &self.executable, hz)
    }
}

/// What decides whether a profile is taken.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub at: Duration,
    /// Whether the server was stalled since the last reading, or is in a slow evicting call.
    pub is_stalled: bool,
    /// Whether a burst or its reclaim is under way.
    pub has_open_burst: bool,
    /// Whether a record that was asked for is still to come.
    pub is_asked: bool,
    /// Whether a record is about to be made.
    pub is_due: bool,
}

/// A profile that is being taken, or was.
struct Begun {
    at: Duration,
    profiling: Profiling,
}

/// A profile that somebody asked for.
struct Asked {
    profiling: Profiling,
    until: Duration,
    answer: oneshot::Sender<Result<Profile, String>>,
}

pub struct Profiles {
    subject: Subject,
    begun: VecDeque<Begun>,
    taken: VecDeque<Profile>,
    /// When the server was last stalled.
    stalled: Option<Duration>,
    /// When the next profile of a stall may begin; `None` if at once.
    again: Option<Duration>,
    /// Whether a requested record was still to come at the last reading, and whether one was about to be made.
    is_asked: bool,
    is_due: bool,
    /// Why the last one could not be taken.
    refused: Option<NoProfile>,
    asked: Vec<Asked>,
    /// What finished profiles have cost, in nanoseconds.
    spent_ns: u64,
}

impl Profiles {
    pub fn new(subject: Subject) -> Self {
        Self {
            subject,
            begun: VecDeque::new(),
            taken: VecDeque::new(),
            stalled: None,
            again: None,
            is_asked: false,
            is_due: false,
            refused: None,
            asked: Vec::new(),
            spent_ns: 0,
        }
    }

    /// Begins and ends profiles for records.
    pub fn follow(&mut self, now: Conditions) {
        if now.is_stalled {
            self.stalled = Some(now.at);
        }
        let is_stalled = (self.stalled).is_some_and(|stalled| now.at.saturating_sub(stalled) <= GAP);
        let is_going_on = now.has_open_burst || is_stalled;
        let was_asked = std::mem::replace(&mut self.is_asked, now.is_asked);
        let was_due = std::mem::replace(&mut self.is_due, now.is_due);
        if now.is_due && !was_due {
            // Another profile goes on with what is under way.
            self.divide();
        }
        self.stop_where_over(&now, is_going_on);
        let is_taking = self.begun.iter().any(|begun| !begun.profiling.is_stopped());
        let may_begin = self.again.is_none_or(|again| again <= now.at);
        let is_new = !was_asked && now.is_asked;
        if !is_taking && (is_new || (now.is_stalled && may_begin)) {
            self.begin(now);
        }
    }

    /// Takes the profiles that are ready, and answers the requests for them. Returns whether one is not ready yet:
    /// after [`Self::stop`] all are within a moment.
    pub fn settle(&mut self, at: Duration) -> bool {
        self.begun.retain_mut(|Begun { profiling, .. }| {
            let Some(profile) = profiling.taken() else { return true };
            self.spent_ns += profiling.spent_ns();
            self.taken.push_back(profile);
            false
        });
        self.taken.drain(..self.taken.len().saturating_sub(KEPT));
        for mut asked in std::mem::take(&mut self.asked) {
            if asked.until <= at || asked.answer.is_closed() {
                asked.profiling.stop();
            }
            match asked.profiling.taken() {
                Some(profile) => {
                    self.spent_ns += asked.profiling.spent_ns();
                    // The caller may be gone.
                    let _ = asked.answer.send(Ok(profile.dated(since_1970())));
                }
                None => self.asked.push(asked),
            }
        }
        !(self.begun.is_empty() && self.asked.is_empty())
    }

    /// Ends the profile, because its burst is over or a record needs it: what comes next, or has already begun, has its
    /// own.
    pub fn divide(&mut self) {
        self.stop_for_records();
        self.again = None;
    }

    fn begin(&mut self, now: Conditions) {
        if now.is_stalled {
            self.again = Some(now.at + AGAIN);
        }
        match self.subject.begin(HZ) {
            Ok(profiling) => {
                self.refused = None;
                self.begun.push_back(Begun { at: now.at, profiling });
            }
            Err(why) => self.refused = Some(why),
        }
    }

    fn stop_where_over(&mut self, now: &Conditions, is_going_on: bool) {
        for begun in self.begun.iter_mut().filter(|begun| !begun.profiling.is_stopped()) {
            let is_long = now.at.saturating_sub(begun.at) >= LONGEST;
            if is_long {
                begun.profiling.stop();
            } else if !(is_going_on || now.is_asked) {
                begun.profiling.stop();
                self.again = None;
            }
        }
    }

    /// Begins a profile on request.
    pub fn ask(&mut self, at: Duration, length: Duration, hz: u32, answer: oneshot::Sender<Result<Profile, String>>) {
        let begun = if self.asked.len() < ASKED {
            self.subject.begin(hz).map_err(|NoProfile(why)| why)
        } else {
            Err(format!("{ASKED} profiles of this server are being taken: try again when one is ready"))
        };
        match begun {
            Ok(profiling) => self.asked.push(Asked { profiling, until: at + length.min(LONGEST), answer }),
            // The caller may be gone.
            Err(why) => drop(answer.send(Err(why))),
        }
    }

    pub fn spent_ns(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| &asked.profiling);
        let under_way = self.begun.iter().map(|begun| &begun.profiling).chain(asked);
        self.spent_ns + under_way.map(Profiling::spent_ns).sum::<u64>()
    }

    /// Ends the profiles for records.
    pub fn stop_for_records(&mut self) {
        self.begun.iter_mut().for_each(|begun| begun.profiling.stop());
    }

    /// Ends all profiles; each caller gets what there is once it is ready.
    pub fn stop(&mut self) {
        self.stop_for_records();
        for asked in &mut self.asked {
            asked.profiling.stop();
        }
    }

    /// Returns the profile that has most of what a record is about, then most of all its time, or why there is none.
    /// `since_1970` dates it.
    pub fn of(&self, wanted: &WantedRecord, since_1970: Duration) -> Result<Profile, NoProfile> {
        let within = |profile: &Profile, (from, to)| profile.within(from, to);
        let (about, span) = ((wanted.began, wanted.ended), wanted.span());
        let best = (self.taken.iter()).max_by_key(|profile| (within(profile, about), within(profile, span)));
        if let Some(profile) = best.filter(|profile| !within(profile, span).is_zero()) {
            return Ok(profile.clone().dated(since_1970));
        }
        let none = if self.begun.is_empty() {
            "the server was not stalled, and a profile begins when it is"
        } else {
            "the profile was not ready when this was written"
        };
        let why = (self.subject.profiler.as_ref().err()).or(self.refused.as_ref());
        Err(why.cloned().unwrap_or_else(|| NoProfile(none.to_owned())))
    }
}
