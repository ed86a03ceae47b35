//! Plans for the daemon, which looks at each executable once.
//!
//! The plan, or why there is none, is kept for as long as a server runs the executable. The last plans are kept for
//! longer: servers that live for seconds would else be planned for again and again.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use evictscope_host::{Executable, ExecutableId, mount_namespace, root_of};
use evictscope_model::answers::UnwatchedReason;
use evictscope_plan::ProbePlan;
use lru::LruCache;
use parking_lot::Mutex;

use super::answer::ContentHash;
use super::{Failure, PlanRequest, Planned};

/// How many executables without a plan are remembered, and of how many the plan is kept even if nobody uses it.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// A plan, or why there is none; `None` until there is an answer.
type Answer = Arc<Mutex<Option<Result<Weak<ProbePlan>, Failure>>>>;

/// An executable, and the mount namespace of a process that runs it. The maker of the namespace may have put its debug
/// file there, so its plan says nothing about servers in other namespaces.
type Seen = (ExecutableId, u64);

/// Makes plans. Clones share them.
#[derive(Clone)]
pub struct Planner(Arc<Plans>);

struct Plans {
    debug_dirs: Vec<PathBuf>,
    known: Mutex<KnownPlans>,
}

/// The plans made so far.
struct KnownPlans {
    executables: HashMap<Seen, Answer>,
    /// A copy of a file, as containers have them, shares its plan; if it needs a debug file, only within its namespace.
    contents: HashMap<(ContentHash, Option<u64>), Weak<ProbePlan>>,
    /// Executables without a plan.
    refused: LruCache<Seen, ()>,
    /// The plans that were asked for last.
    recent: LruCache<Seen, Arc<ProbePlan>>,
}

impl Planner {
    /// Begins with no plans. Debug files are looked for in `debug_dirs` first.
    pub fn new(debug_dirs: Vec<PathBuf>) -> Self {
        let known = KnownPlans {
            executables: HashMap::new(),
            contents: HashMap::new(),
            refused: LruCache::new(REMEMBERED),
            recent: LruCache::new(REMEMBERED),
        };
        Self(Arc::new(Plans { debug_dirs, known: Mutex::new(known) }))
    }

    /// Returns the plan of an executable that process `pid` runs and calls `exe`. Waits for other plans only if it was
    /// never planned. Fails as [`PlanRequest::plan`]; also fails if the plan would show nothing.
    pub fn plan(&self, executable: &Executable, exe: &Path, pid: u32) -> Result<Arc<ProbePlan>, Failure> {
        let namespace = mount_namespace(pid).map_err(|error| Failure {
            reason: UnwatchedReason::Permission,
            is_for_good: false,
            why: format!("cannot tell which files it sees: {error}"),
        })?;
        let seen = (executable.id(), namespace);
        let answer = self.0.known.lock().answer(seen);
        // Every thread whose server runs the same executable waits for the same answer.
        let mut answer = answer.lock();
        match &*answer {
            Some(Ok(plan)) if let Some(plan) = plan.upgrade() => {
                self.0.known.lock().recent.put(seen, plan.clone());
                return Ok(plan);
            }
            Some(Err(failure)) if failure.is_for_good => return Err(failure.clone()),
            _ => {}
        }
        let subject = PlanRequest { executable, exe, root: &root_of(pid), debug_dirs: &self.0.debug_dirs };
        let planned = self.find_or_make(&subject, pid, namespace);
        *answer = Some(planned.as_ref().map(Arc::downgrade).map_err(Failure::clone));
        match &planned {
            Ok(plan) => {
                self.0.known.lock().recent.put(seen, plan.clone());
            }
            Err(failure) if failure.is_for_good => {
                self.0.known.lock().refused.put(seen, ());
            }
            Err(_) => {}
        }
        planned
    }

    fn find_or_make(&self, subject: &PlanRequest<'_>, pid: u32, namespace: u64) -> Result<Arc<ProbePlan>, Failure> {
        let identified = subject.identify()?;
        let among = identified.names.is_some().then_some(namespace);
        let known = self.0.known.lock().contents.get(&(identified.content, among)).and_then(Weak::upgrade);
        if let Some(plan) = known {
            return Ok(plan);
        }
        let Planned { content, plan, debug_file, ignored, .. } = subject.plan_identified(identified, None)?;
        for ignored in ignored {
            tracing::warn!(pid, "debug file ignored: {ignored}");
        }
        if let Some(file) = debug_file {
            tracing::info!(pid, "debug information from {file}");
        }
        if let Some(why) = plan.unusable_reason() {
            let why = format!("{why}; --process-match says which processes are servers");
            return Err(Failure { reason: UnwatchedReason::Executable, is_for_good: true, why });
        }
        let plan = Arc::new(plan);
        self.0.known.lock().contents.insert((content, among), Arc::downgrade(&plan));
        Ok(plan)
    }
}

impl KnownPlans {
    /// Returns where the answer about an executable is, or will be. Forgets the plans that no server uses any longer.
    fn answer(&mut self, seen: Seen) -> Answer {
        self.contents.retain(|_, plan| plan.strong_count() > 0);
        let refused = &self.refused;
        self.executables.retain(|seen, answer| {
            // Another thread holds it only while waiting for it.
            Arc::strong_count(answer) > 1
                || match &*answer.lock() {
                    Some(Ok(plan)) => plan.strong_count() > 0,
                    _ => refused.contains(seen),
                }
        });
        self.executables.entry(seen).or_default().clone()
    }
}
