//! The probe plans made so far: one for each build, as planning reads a whole executable.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::binary::{self, ProbePlan};
use crate::host::{Executable, ExecutableId};

/// The probe plans made so far.
#[derive(Default)]
pub struct Plans {
    by_file: HashMap<ExecutableId, Arc<ProbePlan>>,
}

impl Plans {
    /// The plan of the executable at `path`; a copy of a file that was planned for already, as
    /// containers have them, shares its plan.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, or is no executable.
    pub fn plan(&mut self, path: &Path) -> anyhow::Result<Arc<ProbePlan>> {
        let executable = Executable::open(path)?;
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
            None => Arc::new(binary::plan(&data)?),
        };
        self.by_file.insert(id, plan.clone());
        Ok(plan)
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
