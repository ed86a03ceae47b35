//! Plans executables, one after the other, in a thread of its own with a lower priority.
//!
//! An executable is looked at once: the plan, or why there is none, is kept for as long as a server runs it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use evictscope_host::{Executable, ExecutableId, find_debug_file, root_of};
use evictscope_plan::ProbePlan;
use rustix::process::setpriority_process;

/// How willing the planning thread is to leave the CPU to others. With 19, a plan that takes 30 ms of CPU time waited 18 s
/// for it on a machine that eight busy processes kept from resting.
const NICE: i32 = 5;
/// The number of executables without a plan that are remembered.
const REMEMBERED: usize = 64;

/// A plan, or why there is none.
type Answer = Result<Arc<ProbePlan>, Arc<str>>;

/// Asks the planning thread. Clones ask the same one.
#[derive(Clone)]
pub struct Planner(Sender<Request>);

/// What is asked for.
struct Request {
    executable: Arc<Executable>,
    /// The executable's path, as the process sees it.
    path: PathBuf,
    pid: u32,
    answer: Sender<Answer>,
}

impl Planner {
    /// Starts the thread. Debug files are looked for in `debug_dirs` first.
    ///
    /// # Errors
    ///
    /// Fails where the thread cannot be started.
    pub fn start(debug_dirs: Vec<PathBuf>) -> anyhow::Result<(Self, JoinHandle<()>)> {
        let (sender, requests) = channel();
        let thread = std::thread::Builder::new()
            .name("planner".to_owned())
            .spawn(move || Plans::new(debug_dirs).answer(&requests))
            .context("cannot start the planning thread")?;
        Ok((Self(sender), thread))
    }

    /// Returns the plan of an executable that process `pid` runs. Waits for those that were asked for before.
    ///
    /// # Errors
    ///
    /// Fails where the file cannot be read, or is no server's executable: for good.
    pub fn plan(
        &self,
        executable: &Arc<Executable>,
        path: PathBuf,
        pid: u32,
    ) -> anyhow::Result<Arc<ProbePlan>> {
        let (answer, answered) = channel();
        let request = Request {
            executable: executable.clone(),
            path,
            pid,
            answer,
        };
        let answer = self
            .0
            .send(request)
            .ok()
            .and_then(|()| answered.recv().ok());
        let answer = answer.context("the planning thread has ended")?;
        answer.map_err(|why| anyhow!("{why}"))
    }
}

/// The plans made so far. A copy of a file, as containers have them, shares its plan.
struct Plans {
    debug_dirs: Vec<PathBuf>,
    /// The hash, with a random key, of each file's content. A build id can be forged, which would give
    /// one server the plan of another.
    contents: HashMap<ExecutableId, u64>,
    /// The plans, by the hash of the content.
    plans: HashMap<u64, Arc<ProbePlan>>,
    /// Executables without a plan, the newest last.
    refused: VecDeque<(ExecutableId, Arc<str>)>,
    hasher: RandomState,
}

impl Plans {
    fn new(debug_dirs: Vec<PathBuf>) -> Self {
        Self {
            debug_dirs,
            contents: HashMap::new(),
            plans: HashMap::new(),
            refused: VecDeque::new(),
            hasher: RandomState::new(),
        }
    }

    fn answer(mut self, requests: &Receiver<Request>) {
        // Of this thread alone (setpriority(2)).
        if let Err(error) = setpriority_process(None, NICE) {
            tracing::debug!(%error, "plans at the usual priority");
        }
        for request in requests {
            let answer = self.plan(&request);
            // Nobody waits for it any more where the agent is about to end.
            let _ = request.answer.send(answer);
            self.forget_unused();
        }
    }

    fn plan(&mut self, request: &Request) -> Answer {
        let id = request.executable.id();
        if let Some((_, why)) = self.refused.iter().find(|(refused, _)| *refused == id) {
            return Err(why.clone());
        }
        self.find_or_make(request).map_err(|error| {
            let why: Arc<str> = format!("{error:#}").into();
            if self.refused.len() == REMEMBERED {
                self.refused.pop_front();
            }
            self.refused.push_back((id, why.clone()));
            why
        })
    }

    fn find_or_make(&mut self, request: &Request) -> anyhow::Result<Arc<ProbePlan>> {
        let id = request.executable.id();
        let known = self.contents.get(&id);
        if let Some(plan) = known.and_then(|content| self.plans.get(content)) {
            return Ok(plan.clone());
        }
        let data = request.executable.read()?;
        let content = self.hasher.hash_one(&data);
        let plan = match self.plans.get(&content) {
            Some(plan) => plan.clone(),
            None => Arc::new(self.make(request, &data)?),
        };
        self.contents.insert(id, content);
        self.plans.insert(content, plan.clone());
        Ok(plan)
    }

    fn make(&self, request: &Request, data: &[u8]) -> anyhow::Result<ProbePlan> {
        let pid = request.pid;
        let debug = find_debug_file(&self.debug_dirs, data, &request.path, &root_of(pid))?;
        for ignored in &debug.ignored {
            tracing::warn!(pid, "debug file ignored: {ignored}");
        }
        if let Some(file) = &debug.found {
            tracing::info!(pid, "debug information from {}", file.path.display());
        }
        let plan = evictscope_plan::plan(data, debug.data())?;
        if let Some(why) = plan.unusable_reason() {
            anyhow::bail!("{why}; --process-match says which processes are servers");
        }
        Ok(plan)
    }

    /// Forgets the plans that no server uses any more.
    fn forget_unused(&mut self) {
        self.plans.retain(|_, plan| Arc::strong_count(plan) > 1);
        self.contents
            .retain(|_, content| self.plans.contains_key(content));
    }
}
