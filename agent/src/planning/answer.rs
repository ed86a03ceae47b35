//! What the process that plans does, and the form of its answers.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_host::{Contents, DebugPlace, Executable, ExecutableError, Opened, Search, search};
use evictscope_plan::{CodeFile, DebugFileNames, ElfError, NamedFunction, ProbePlan, named_function, plan};
use ring::digest::{SHA256, digest};

use super::confined;
use crate::terminal;

/// A hash of a file's content: a build id can be forged, which would give one server the plan of another.
pub type Content = [u8; 32];

/// Which executable a file is.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Identified {
    pub content: Content,
    /// The names of its debug file, if it needs one.
    pub names: Option<DebugFileNames>,
}

/// What was found in an executable.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Planned {
    pub(super) content: Content,
    /// The plan.
    pub plan: ProbePlan,
    /// The function that was asked for.
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

/// Why there is no answer.
#[derive(BorshDeserialize, BorshSerialize)]
pub enum Trouble {
    /// The file cannot be opened or read.
    Unreadable(String),
    /// It is not an executable, or not one that can be planned for.
    Refused(String),
}

/// Plan for the executable on standard input, without any privilege, for the evictscope that started this process
#[derive(clap::Args)]
pub struct Question {
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

/// Answers on the standard output.
///
/// # Errors
///
/// Fails if this process cannot be confined, or nobody reads the answer.
pub fn answer(question: &Question) -> anyhow::Result<ExitCode> {
    confined::limit().context("cannot set limits")?;
    let places = question.places.chunks_exact(2);
    let places = places.map(|place| DebugPlace { root: place[0].clone(), path: place[1].clone() });
    let places: Vec<_> = places.map(|place| place.open()).collect();
    if !question.mapped.is_empty() {
        confined::lock().context("cannot give up what reading does not need")?;
        let files = places.into_iter().zip(&question.mapped);
        let files = files.map(|((_, file), inode)| mapped(file, *inode));
        let answer = Ok::<Vec<_>, Trouble>(files.collect());
        terminal::document(&borsh::to_vec(&answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let executable = Executable::from_file(input.into(), &question.path);
    let contents = executable.and_then(|executable| executable.contents());
    confined::lock().context("cannot give up what planning does not need")?;
    let contents = contents.and_then(Contents::read);
    let data = contents.map_err(|error| Trouble::Unreadable(error.to_string()));
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

fn identify(question: &Question, data: &[u8]) -> Result<Identified, Trouble> {
    Ok(Identified { content: content(data), names: DebugFileNames::of(data).map_err(|why| refused(question, &why))? })
}

/// Reads a file, if it has this inode number and code.
fn mapped(file: Result<Contents, ExecutableError>, inode: u64) -> Option<CodeFile> {
    let data = file.and_then(|file| file.if_numbered(inode)?.read());
    CodeFile::read(&data.ok()?, None, None).ok()
}

fn code(question: &Question, data: &[u8], places: Vec<Opened>) -> Result<CodeFile, Trouble> {
    let refused = |why: &dyn std::error::Error| refused(question, why);
    let debug = debug_file(data, places).map_err(|why| refused(&why))?;
    let plan = plan(data, debug.data()).map_err(|why| refused(&why))?;
    CodeFile::read(data, debug.data(), Some(&plan)).map_err(|why| refused(&why))
}

fn debug_file(data: &[u8], places: Vec<Opened>) -> Result<Search, ElfError> {
    let names = DebugFileNames::of(data)?;
    let found = names.map(|names| search(places, |data| names.check(data).map_err(|why| why.to_string())));
    Ok(found.unwrap_or_default())
}

fn planned(question: &Question, data: &[u8], places: Vec<Opened>) -> Result<Planned, Trouble> {
    let debug = debug_file(data, places).map_err(|why| refused(question, &why))?;
    let function = question.function.as_deref();
    let function = function.map(|name| named_function(data, debug.data(), name));
    let function = function.transpose().map_err(|why| Trouble::Refused(why.to_string()))?;
    let begun = Instant::now();
    let plan = plan(data, debug.data()).map_err(|why| refused(question, &why))?;
    let took = begun.elapsed();
    let found = debug.found.map(|file| file.path);
    Ok(Planned {
        content: content(data),
        plan,
        function,
        debug_file: found.map(|path| path.to_string_lossy().into_owned()),
        ignored: debug.ignored,
        lacks_symbols: debug.is_missing,
        nanoseconds: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
    })
}

fn refused(question: &Question, why: &dyn std::error::Error) -> Trouble {
    Trouble::Refused(format!("cannot plan for {}: {why}", question.path.display()))
}

fn content(data: &[u8]) -> Content {
    let mut content = Content::default();
    content.copy_from_slice(digest(&SHA256, data).as_ref());
    content
}

impl Planned {
    /// Returns whether it can be true of this executable.
    pub(super) fn is_possible(&self, executable: &Executable) -> bool {
        let bytes = executable.id().bytes();
        let function = self.function.as_ref();
        self.plan.is_possible(bytes) && function.is_none_or(|own| own.is_possible(bytes))
    }

    /// Tells the user which debug files were rejected.
    pub fn say_ignored(&self) {
        for ignored in &self.ignored {
            terminal::note(&format!("debug file ignored: {ignored}"));
        }
    }
}
