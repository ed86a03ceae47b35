//! How many keys a server has.

use std::sync::Arc;

use evictscope_host::MemoryError;
use evictscope_plan::ProbePlan;

use super::databases::Databases;
use super::memory::Memory;

/// Counts the keys of one server, again and again.
pub struct KeyCount {
    memory: Memory,
    plan: Arc<ProbePlan>,
    load_bias: u64,
}

impl KeyCount {
    /// Opens the memory of a process whose executable has `plan` and was loaded with `load_bias`.
    ///
    /// # Errors
    ///
    /// Fails where the process has ended or may not be looked into.
    pub fn open(pid: u32, plan: Arc<ProbePlan>, load_bias: u64) -> Result<Self, MemoryError> {
        Ok(Self {
            memory: Memory::open(pid)?,
            plan,
            load_bias,
        })
    }

    /// Returns how many keys there are in all databases; `None` where the layout of its version is not known, or a table is
    /// about to change.
    pub fn now(&self) -> Option<u64> {
        // Databases can be made at any time.
        let databases = Databases::find(&self.memory, &self.plan, self.load_bias);
        Some(databases.ok()?.tables(&self.memory)?.used())
    }
}
