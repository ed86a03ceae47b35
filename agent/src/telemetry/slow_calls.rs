//! The slowest evicting calls of late.

use serde::{Deserialize, Serialize};

/// One evicting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    /// When it ended, since 1970, microseconds.
    pub unix_us: u64,
    /// How long it took, nanoseconds.
    pub duration_ns: u64,
    /// Its goal (`mem_tofree`), bytes; `None` where that is not known.
    pub goal: Option<u64>,
    /// How it ended.
    pub result: CallResult,
}

/// How an evicting call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    /// Memory is within the limit.
    Ok,
    /// It stopped at its time limit.
    Running,
    /// Nothing could be evicted.
    Fail,
    /// Where the result is was not found.
    Unknown,
}
