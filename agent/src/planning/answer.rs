//! What the process that plans does, and may do: only read what it has open, and answer.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_host::{Contents, DebugPlace, Executable, ExecutableError, OpenedDebugFile, Search, search};
use evictscope_plan::{CodeFile, DebugFileNames, ElfError, NamedFunction, ProbePlan, named_function, plan};
use evictscope_telemetry::nanoseconds;
use ring::digest::{SHA256, digest};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setpriority_process, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_name, set_no_new_privs};
use seccompiler::{apply_filter, compile_from_json};

use crate::terminal;

/// Its niceness. With 19, a plan that takes 30 ms of CPU time waited 18 s for it on a machine that eight processes kept
/// busy.
const NICE: i32 = 5;
/// The most CPU time, in seconds. A plan has a limit of steps, which take about a second. In an emulated machine that
/// got little CPU from its host, a usual plan took more than five by that machine's clock.
pub const CPU_SECONDS: u64 = 20;
/// The most memory, in bytes: an executable and a debug file of 128 MiB each, what planning keeps of them, and this
/// program.
const MEMORY: u64 = 512 << 20;

/// A hash of a file's content: a build id can be forged, which would give one server the plan of another.
pub type ContentHash = [u8; 32];

/// Which executable a file is.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Identified {
    pub content: ContentHash,
    /// The names of its debug file, if it needs one.
    pub names: Option<DebugFileNames>,
}

/// What was found in an executable.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Planned {
    pub(super) content: ContentHash,
    pub plan: ProbePlan,
    pub function: Option<NamedFunction>,
    /// The separate file with its debug information.
    pub debug_file: Option<String>,
    /// Files that were rejected, each with the reason.
    pub ignored: Vec<String>,
    /// Whether it has no debug information, and no file with it was found.
    pub lacks_symbols: bool,
    /// How long planning took, without reading.
    pub nanoseconds: u64,
}

#[derive(BorshDeserialize, BorshSerialize)]
pub enum NoAnswer {
    /// The file cannot be opened or read.
    Unreadable(String),
    /// It is not an executable, or not one that can be planned for.
    Refused(String),
}

/// Plan for the executable on standard input, without any privilege, for the evictscope that started this process
#[derive(clap::Args)]
pub struct PlannerArguments {
    /// Only say which executable it is
    #[arg(long)]
    identify: bool,
    /// Say how to unwind stacks instead
    #[arg(long)]
    code: bool,
    /// Say that about the files at the given places, which have these inode numbers
    #[arg(long)]
    mapped: Vec<u64>,
    /// The function to find besides the plan
    #[arg(long)]
    function: Option<String>,
    /// What to call the executable
    path: PathBuf,
    /// Where its debug file may be: root directories, each with a path below it
    places: Vec<PathBuf>,
}

/// Answers on the standard output. Fails if this process cannot be confined, or nobody reads the answer.
pub fn answer(question: &PlannerArguments) -> anyhow::Result<ExitCode> {
    limit().context("cannot set limits")?;
    let open = |place: &[PathBuf]| DebugPlace { root: place[0].clone(), path: place[1].clone() }.open();
    let places: Vec<_> = question.places.chunks_exact(2).map(open).collect();
    if !question.mapped.is_empty() {
        lock().context("cannot give up what reading does not need")?;
        let files = places.into_iter().zip(&question.mapped).map(|((_, file), inode)| mapped(file, *inode));
        let answer: Result<Vec<_>, NoAnswer> = Ok(files.collect());
        terminal::document(&borsh::to_vec(&answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let contents = Executable::from_file(input.into(), &question.path).and_then(|executable| executable.contents());
    lock().context("cannot give up what planning does not need")?;
    let data = contents.and_then(Contents::read).map_err(|error| NoAnswer::Unreadable(error.to_string()));
    let answer = if question.identify {
        borsh::to_vec(&data.and_then(|data| identify(question, &data)))
    } else if question.code {
        borsh::to_vec(&data.and_then(|data| code(question, &data, places)))
    } else {
        borsh::to_vec(&data.and_then(|data| planned(question, &data, places)))
    };
    terminal::document(&answer?)?;
    Ok(ExitCode::SUCCESS)
}

fn identify(question: &PlannerArguments, data: &[u8]) -> Result<Identified, NoAnswer> {
    Ok(Identified { content: content(data), names: DebugFileNames::of(data).map_err(|why| refused(question, &why))? })
}

/// Reads a file, if it has this inode number and code.
fn mapped(file: Result<Contents, ExecutableError>, inode: u64) -> Option<CodeFile> {
    let data = file.and_then(|file| file.if_numbered(inode)?.read());
    CodeFile::read(&data.ok()?).ok()
}

fn code(question: &PlannerArguments, data: &[u8], places: Vec<OpenedDebugFile>) -> Result<CodeFile, NoAnswer> {
    let refused = |why: &dyn std::error::Error| refused(question, why);
    let debug = debug_file(data, places).map_err(|why| refused(&why))?;
    let plan = plan(data, debug.data()).map_err(|why| refused(&why))?;
    plan.code_file(data, debug.data()).map_err(|why| refused(&why))
}

fn debug_file(data: &[u8], places: Vec<OpenedDebugFile>) -> Result<Search, ElfError> {
    let names = DebugFileNames::of(data)?;
    Ok(names.map(|names| search(places, |data| names.check(data).map_err(|why| why.to_string()))).unwrap_or_default())
}

fn planned(question: &PlannerArguments, data: &[u8], places: Vec<OpenedDebugFile>) -> Result<Planned, NoAnswer> {
    let debug = debug_file(data, places).map_err(|why| refused(question, &why))?;
    let function = question.function.as_deref().map(|name| named_function(data, debug.data(), name)).transpose();
    let function = function.map_err(|why| NoAnswer::Refused(why.to_string()))?;
    let begun = Instant::now();
    let plan = plan(data, debug.data()).map_err(|why| refused(question, &why))?;
    Ok(Planned {
        content: content(data),
        plan,
        function,
        nanoseconds: nanoseconds(begun.elapsed()),
        debug_file: debug.found.map(|file| file.path.to_string_lossy().into_owned()),
        ignored: debug.ignored,
        lacks_symbols: debug.is_missing,
    })
}

fn refused(question: &PlannerArguments, why: &dyn std::error::Error) -> NoAnswer {
    NoAnswer::Refused(format!("cannot plan for {}: {why}", question.path.display()))
}

fn content(data: &[u8]) -> ContentHash {
    let mut content = ContentHash::default();
    content.copy_from_slice(digest(&SHA256, data).as_ref());
    content
}

impl Planned {
    /// Returns whether it can be true of this executable.
    pub(super) fn is_possible(&self, executable: &Executable) -> bool {
        let bytes = executable.id().bytes;
        self.plan.is_possible(bytes) && self.function.as_ref().is_none_or(|function| function.is_possible(bytes))
    }

    /// Tells the user which debug files were rejected.
    pub fn say_ignored(&self) {
        for ignored in &self.ignored {
            terminal::note(&format!("debug file ignored: {ignored}"));
        }
    }
}

/// Limits this process, and has it end with the process that started it.
fn limit() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_name(c"evictscope-plan")?;
    // If these are forbidden, it can do without.
    let _ = setpriority_process(None, NICE);
    // If memory runs out, the kernel kills it rather than the agent.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    for (resource, most, later) in [
        (Resource::As, MEMORY, 0),
        // At this limit the kernel sends SIGXCPU; at the hard one it would send SIGKILL, as others do.
        (Resource::Cpu, CPU_SECONDS, 1),
        (Resource::Core, 0, 0),
    ] {
        set(resource, most, later).with_context(|| format!("{resource:?}"))?;
    }
    Ok(())
}

/// Gives up all capabilities, all files that are not open, and all system calls except those in
/// `calls.json` (for reading, the allocator, a panic, and the end): any other call fails.
fn lock() -> anyhow::Result<()> {
    set(Resource::Nofile, 0, 0)?;
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    let filters = compile_from_json(&include_bytes!("calls.json")[..], std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(filters.get("planner").context("no filter")?)?)
}

/// Sets a limit, and the hard limit `later` above it.
fn set(resource: Resource, most: u64, later: u64) -> rustix::io::Result<()> {
    // It may already be lower, and nobody may raise it.
    let before = getrlimit(resource).maximum;
    let lower = |most: u64| Some(before.map_or(most, |before| before.min(most)));
    setrlimit(resource, Rlimit { current: lower(most), maximum: lower(most + later) })
}
