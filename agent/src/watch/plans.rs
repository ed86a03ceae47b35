//! The probe plans made so far: one for each build, as planning reads a whole executable.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::debug_files::DebugFiles;
use crate::host::{Executable, ExecutableId, ServerProcess};
use evictscope_plan::ProbePlan;

/// The probe plans made so far.
pub struct Plans {
    debug_files: DebugFiles,
    by_file: HashMap<ExecutableId, Made>,
    hasher: RandomState,
}

/// A plan, and of what.
struct Made {
    plan: Arc<ProbePlan>,
    /// Hash of the executable's content. Its build id would not do: anybody can forge that, and so
    /// give another server's plan to theirs, or theirs to another. The hash has a random key.
    content: u64,
}

impl Plans {
    /// None yet; `debug_files` says where debug files are.
    pub fn new(debug_files: DebugFiles) -> Self {
        Self {
            debug_files,
            by_file: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// The plan of the executable of `process`; a copy of a file that was planned for already, as
    /// containers have them, shares its plan.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, or is no executable.
    pub fn plan(&mut self, process: &ServerProcess) -> anyhow::Result<Arc<ProbePlan>> {
        let executable = Executable::open(&process.exe_proc_path)?;
        let id = executable.id();
        if let Some(made) = self.by_file.get(&id) {
            return Ok(made.plan.clone());
        }
        let data = executable.read()?;
        let content = self.hasher.hash_one(&data);
        let known = self.by_file.values().find(|made| made.content == content);
        let plan = match known {
            Some(made) => made.plan.clone(),
            None => Arc::new(self.make(process, &data)?),
        };
        let made = Made {
            plan: plan.clone(),
            content,
        };
        self.by_file.insert(id, made);
        Ok(plan)
    }

    fn make(&self, process: &ServerProcess, data: &[u8]) -> anyhow::Result<ProbePlan> {
        let pid = process.identity.pid;
        let debug = self.debug_files.find_for_process(data, &process.exe, pid)?;
        for ignored in &debug.ignored {
            tracing::warn!(pid, "debug file ignored: {ignored}");
        }
        if let Some(file) = &debug.found {
            tracing::info!(pid, "debug information from {}", file.path.display());
        }
        Ok(evictscope_plan::plan(data, debug.data())?)
    }

    /// Forgets the plans that no server uses any more.
    pub fn forget_unused(&mut self) {
        let plans: Vec<Arc<ProbePlan>> = (self.by_file.values())
            .map(|made| made.plan.clone())
            .collect();
        let held_here = |plan: &Arc<ProbePlan>| {
            plans
                .iter()
                .filter(|other| Arc::ptr_eq(other, plan))
                .count()
        };
        // Each plan is held once by the list, and once by each file that has it.
        self.by_file
            .retain(|_, made| Arc::strong_count(&made.plan) > 2 * held_here(&made.plan));
    }
}
