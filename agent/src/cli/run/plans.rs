//! The probe plans made so far: one for each build, as planning reads a whole executable.

use std::collections::HashMap;
use std::sync::Arc;

use crate::binary::{self, ProbePlan};
use crate::cli::debug_files::DebugFiles;
use crate::host::{Executable, ExecutableId, ServerProcess};

/// The probe plans made so far.
pub struct Plans {
    debug_files: DebugFiles,
    by_file: HashMap<ExecutableId, Arc<ProbePlan>>,
}

impl Plans {
    /// None yet; `debug_files` says where debug files are.
    pub fn new(debug_files: DebugFiles) -> Self {
        Self {
            debug_files,
            by_file: HashMap::new(),
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
        if let Some(plan) = self.by_file.get(&id) {
            return Ok(plan.clone());
        }
        let data = executable.read()?;
        let build_id = binary::build_id(&data)?;
        let known = self
            .by_file
            .values()
            .find(|plan| build_id.is_some() && plan.build_id == build_id)
            .cloned();
        let plan = match known {
            Some(plan) => plan,
            None => Arc::new(self.make(process, &data)?),
        };
        self.by_file.insert(id, plan.clone());
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
        Ok(binary::plan(data, debug.data())?)
    }

    /// Forgets the plans that no server uses any more.
    pub fn forget_unused(&mut self) {
        let plans: Vec<Arc<ProbePlan>> = self.by_file.values().cloned().collect();
        let held_here = |plan: &Arc<ProbePlan>| {
            plans
                .iter()
                .filter(|other| Arc::ptr_eq(other, plan))
                .count()
        };
        // Each plan is held once by the list, and once by each file that has it.
        self.by_file
            .retain(|_, plan| Arc::strong_count(plan) > 2 * held_here(plan));
    }
}
