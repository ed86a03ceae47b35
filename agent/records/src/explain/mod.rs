//! What happened in a record, why, and what would help: computed from its numbers, or not said.
//!
//! Pure: a [`Record`] in, an [`Explanation`] out. `window::Window` divides a record into the calm before, what it is
//! about, and what came after. `account::Account` says what memory went to. Each cause that needs more than that has a
//! file: `slow_calls`, `buffers`, `expiry`, `loss`, `parts`, `stalls`, `step`. `causes` weighs them. `remedies` has
//! what a run showed to work, and what the runbooks say: nothing that is already so. `docs/TOUR.md` is for operators.
//!
//! Deliberately absent: anything that guesses. If numbers are missing, or decide nothing, no cause is named.

mod account;
mod buffers;
mod cause_kind;
mod causes;
mod commands;
mod expiry;
mod finding;
mod growth;
mod happened;
mod loss;
mod parts;
#[cfg(test)]
mod properties;
mod remedies;
mod slow_calls;
mod stalls;
mod step;
#[cfg(test)]
mod tests;
mod window;

use self::account::Account;
pub use self::cause_kind::CauseKind;
use self::slow_calls::SlowCalls;
use self::window::Window;
use crate::{Ending, Record, text};

/// Waiting for a CPU is mentioned from this share of the time on.
const WAITED: f64 = 0.2;

/// What a record says, in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// What happened, in one sentence.
    pub what: String,
    /// Why, in one sentence, or that the evidence decides nothing.
    pub why: String,
    /// What would help, in one sentence, or that nothing is known to.
    pub help: String,
    /// The causes that the evidence shows, the one that explains most first.
    pub causes: Vec<Cause>,
    /// The remedies for them.
    pub remedies: Vec<Remedy>,
}

/// A cause, with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Which it is.
    pub kind: CauseKind,
    /// What it did, for people: a sentence without its full stop.
    pub summary: String,
    /// Its bytes or its share of the time, and whatever else shows it: one sentence each, with numbers.
    pub evidence: Vec<String>,
}

/// What would help.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// The cause that it is for.
    pub against: CauseKind,
    /// What to do, with sizes: `Raise maxmemory by 64 MiB, to 389 MiB`.
    pub what: String,
    /// The numbers that the size rests on.
    pub evidence: Vec<String>,
    /// What it rests on.
    pub proof: Proof,
}

/// What a remedy rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A run on a real server showed that it works: what was run, and what was seen with it and without.
    Lab(&'static str),
    /// A runbook says so. It was not tried in the lab.
    Runbook(&'static str),
}

/// Explains a record.
pub fn explain(record: &Record) -> Explanation {
    let explanation = explained(&Window::of(record));
    if let Some(ending) = record.ending { ended(ending, explanation) } else { explanation }
}

/// Adds why the server ended, as far as the kernel says. What came before is not said to be why.
fn ended(ending: Ending, before: Explanation) -> Explanation {
    let help = if ending.is_clean() {
        "Nothing needs to be done."
    } else {
        "The runbook EvictscopeServerDied says where to look."
    };
    let (mut why, mut help) = (format!("{}.", text::capital(ending.why())), help.to_owned());
    if !before.causes.is_empty() {
        why += &format!(" Of what clients felt before that: {}", before.why);
        help += &format!(" Against what clients felt: {}", before.help);
    }
    Explanation { why, help, ..before }
}

fn explained(window: &Window<'_>) -> Explanation {
    let what = happened::sentence(window);
    if !window.is_incident() {
        let (why, help) = match window.stalled_us() {
            Some(_) => (
                "Evictions stalled no client, and nothing else did for a second, so there is nothing to explain.",
                "Nothing needs to be done.",
            ),
            None => (
                "There was no burst that stalled clients. Whether anything else did is not known.",
                "Nothing can be recommended.",
            ),
        };
        return Explanation { what, why: why.to_owned(), help: help.to_owned(), ..Explanation::default() };
    }
    let account = Account::of(window);
    let causes = causes::found(window, &account);
    let mut why = if causes.is_empty() {
        account.why_undecided(window)
    } else {
        joined(causes.iter().map(|cause| cause.summary.as_str()))
    };
    if window.has_evicted() && !window.failed_to_evict() {
        let undecided = SlowCalls::of(window).and_then(|slow| slow.undecided());
        why.extend(undecided.map(|undecided| format!(" {undecided}.")));
    }
    if !causes.iter().any(|cause| matches!(cause.kind, CauseKind::NoCpu | CauseKind::Quota | CauseKind::Fork)) {
        why.extend(waited(window));
    }
    let mut remedies = remedies::known(window, &account, &causes);
    remedies.extend(remedies::first_aid(window, &account, &causes));
    Explanation { what, why, help: remedies::sentence(&causes, &remedies), causes, remedies }
}

/// Says for how long the main thread waited for a CPU, if that is worth mentioning: it makes everything worse.
fn waited(window: &Window<'_>) -> Option<String> {
    let share = window.waiting_share().filter(|share| *share >= WAITED)?;
    let percent = 100.0 * share.min(1.0);
    Some(format!(" For {percent:.0} % of the time the main thread waited for a CPU: {}.", stalls::who_had_it(window)))
}

/// Joins sentences without full stops into one.
fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let parts: Vec<_> = parts.collect();
    format!("{}.", parts.join("; also: "))
}
