//! What happened in a record, why, and what would help: computed from its numbers, or not said.
//!
//! Pure: a [`Record`] in, an [`Explanation`] out.

use crate::records::Record;

/// What a record says, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What happened, in one sentence.
    pub what: String,
    /// Why, in one sentence; says so where the evidence decides nothing.
    pub why: String,
    /// What would help, in one sentence; says so where nothing is known to.
    pub help: String,
    /// The causes that the evidence shows, the one that explains most first.
    pub causes: Vec<Cause>,
    /// The remedies for them.
    pub remedies: Vec<Remedy>,
}

/// Why it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CauseKind {
    /// Client buffers took the memory.
    ClientBuffers,
    /// Replication and AOF buffers did.
    ReplicationBuffers,
    /// A hash table was resized: a single step by a power of two.
    ResizedTable,
    /// Expired keys were held, as the expire cycle was behind.
    ExpiryBehind,
    /// One eviction call took most of the time: a big key was freed in the main thread.
    BigKey,
    /// The data grew to the limit: writes, no other cause.
    Data,
}

/// A cause, with what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Which it is.
    pub kind: CauseKind,
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
    /// The run of the lab that showed that it works: its command, and what was seen.
    pub shown_by: &'static str,
}

/// Explains a record.
pub fn explain(record: &Record) -> Explanation {
    let _ = record;
    todo!()
}
