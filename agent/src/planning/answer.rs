//! What the process that plans does, and the form of its answers.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_host::{Contents, DebugPlace, Executable, search};
use evictscope_plan::{DebugFileNames, NamedFunction, ProbePlan, named_function, plan};
use ring::digest::{SHA256, digest};

use super::confined;

/// A hash of a file's content: a build id can be forged, which would give one server the plan of another.
pub type Content = [u8; 32];

/// Which executable it is.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Identified {
    pub content: Content,
    /// What its debug file is called, where it needs one.
    pub names: Option<DebugFileNames>,
}

/// What was found in it.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct Planned {
    content: Content,
    plan: ProbePlan,
    function: Option<NamedFunction>,
    debug_file: Option<String>,
    ignored: Vec<String>,
    lacks_symbols: bool,
    nanoseconds: u64,
}

/// Why there is no answer.
#[derive(BorshDeserialize, BorshSerialize)]
pub enum Trouble {
    /// The file cannot be opened or read.
    Unreadable(String),
    /// It is no executable, or not one that is looked into.
    Refused(String),
}

/// What is asked of the executable that is the standard input.
pub struct Question {
    /// What to call it.
    pub path: PathBuf,
    /// Only say which it is.
    pub identify: bool,
    /// The function to find beside the plan.
    pub function: Option<String>,
    /// Where its debug file may be.
    pub places: Vec<DebugPlace>,
}

/// Answers on the standard output.
///
/// # Errors
///
/// Where this process cannot be confined, or nobody hears the answer.
pub fn answer(question: &Question) -> anyhow::Result<()> {
    confined::limit().context("cannot set limits")?;
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let executable = Executable::from_file(input.into(), &question.path);
    let contents = executable.and_then(|executable| executable.contents());
    let debug: Vec<_> = question.places.iter().map(DebugPlace::open).collect();
    confined::lock().context("cannot give up what planning does not need")?;
    let contents = contents.and_then(Contents::read);
    let data = contents.map_err(|error| Trouble::Unreadable(error.to_string()));
    let answer = match question.identify {
        true => borsh::to_vec(&data.and_then(|data| identify(question, &data))),
        false => borsh::to_vec(&data.and_then(|data| planned(question, &data, debug))),
    };
    Ok(std::io::stdout().write_all(&answer?)?)
}

fn identify(question: &Question, data: &[u8]) -> Result<Identified, Trouble> {
    Ok(Identified {
        content: content(data),
        names: DebugFileNames::of(data).map_err(|why| refused(question, &why))?,
    })
}

fn planned(
    question: &Question,
    data: &[u8],
    debug: Vec<(PathBuf, Result<Contents, evictscope_host::ExecutableError>)>,
) -> Result<Planned, Trouble> {
    let names = DebugFileNames::of(data).map_err(|why| refused(question, &why))?;
    let debug = names.map(|names| {
        search(debug, |data| {
            names.check(data).map_err(|why| why.to_string())
        })
    });
    let debug = debug.unwrap_or_default();
    let function = question.function.as_deref();
    let function = function.map(|name| named_function(data, debug.data(), name));
    let function = function
        .transpose()
        .map_err(|why| Trouble::Refused(why.to_string()))?;
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
    Trouble::Refused(format!(
        "cannot plan for {}: {why}",
        question.path.display()
    ))
}

fn content(data: &[u8]) -> Content {
    let mut content = Content::default();
    content.copy_from_slice(digest(&SHA256, data).as_ref());
    content
}

impl Planned {
    /// Returns what was found, if it can be true of this executable.
    pub fn checked(self, executable: &Executable) -> Option<super::Planned> {
        let bytes = executable.id().bytes();
        let function = self.function.as_ref();
        let is_possible = self.plan.is_possible(bytes)
            && function.is_none_or(|function| function.is_possible(bytes));
        is_possible.then_some(super::Planned {
            content: self.content,
            plan: self.plan,
            function: self.function,
            debug_file: self.debug_file.map(PathBuf::from),
            ignored: self.ignored,
            lacks_symbols: self.lacks_symbols,
            took: Duration::from_nanos(self.nanoseconds),
        })
    }
}
