//! The probe plans made so far: one for each build, as planning reads a whole executable.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use crate::host::{Executable, ExecutableId, ServerProcess, find_debug_file, root_of};
use evictscope_plan::ProbePlan;

/// The probe plans made so far. A copy of a file, as containers have them, shares its plan.
pub struct Plans {
    debug_dirs: Vec<PathBuf>,
    /// The hash, with a random key, of each file's content. A build id can be forged, which would give
    /// one server the plan of another.
    contents: HashMap<ExecutableId, u64>,
    /// The plans, by the hash of the content.
    plans: HashMap<u64, Arc<ProbePlan>>,
    hasher: RandomState,
}

impl Plans {
    /// Returns an empty collection. Debug files are looked for in `debug_dirs` first.
    pub fn new(debug_dirs: Vec<PathBuf>) -> Self {
        Self {
            debug_dirs,
            contents: HashMap::new(),
            plans: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the plan of the executable of `process`, which is made if it is not known.
    ///
    /// # Errors
    ///
    /// Fails where the file cannot be read, or is not an executable.
    pub fn plan(&mut self, process: &ServerProcess) -> anyhow::Result<Arc<ProbePlan>> {
        let executable = Executable::open(&process.exe_proc_path)?;
        let id = executable.id();
        let known = self.contents.get(&id);
        if let Some(plan) = known.and_then(|content| self.plans.get(content)) {
            return Ok(plan.clone());
        }
        let data = executable.read()?;
        let content = self.hasher.hash_one(&data);
        let plan = match self.plans.get(&content) {
            Some(plan) => plan.clone(),
            None => Arc::new(self.make(process, &data)?),
        };
        self.contents.insert(id, content);
        self.plans.insert(content, plan.clone());
        Ok(plan)
    }

    fn make(&self, process: &ServerProcess, data: &[u8]) -> anyhow::Result<ProbePlan> {
        let pid = process.identity.pid;
        let debug = find_debug_file(&self.debug_dirs, data, &process.exe, &root_of(pid))?;
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
        self.plans.retain(|_, plan| Arc::strong_count(plan) > 1);
        self.contents
            .retain(|_, content| self.plans.contains_key(content));
    }
}
