//! Plans, and what stacks are unwound by, made in processes of their own, one for each file that is looked at.
//!
//! An executable is not trusted, nor is its file system. So this process never opens one to be read, which may wait for ever; it starts
//! itself anew ([`process`]) with the file as standard input, or told where it is. That process opens the file and what may be its debug file, gives up all
//! that it may do ([`confined`]), and only then reads, plans and answers ([`mod@answer`]). Few do so at once ([`turn`]). [`Planner`] is the daemon's.

mod answer;
mod confined;
mod planner;
mod process;
mod turn;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use borsh::BorshDeserialize;
use evictscope_host::{Executable, debug_places};
use evictscope_plan::CodeFile;
use evictscope_web::Reason;

use answer::Identified;
pub use answer::{Planned, Question, answer};
pub use planner::{Planner, is_usable};

/// An executable to plan for.
pub struct Subject<'a> {
    /// The file.
    pub executable: &'a Executable,
    /// Its path below `root`.
    pub exe: &'a Path,
    /// The root directory of its debug files.
    pub root: &'a Path,
    /// Where debug files are looked for first.
    pub debug_dirs: &'a [PathBuf],
}

/// Why there is no plan.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// The kind of reason.
    pub reason: Reason,
    /// Whether it will not be otherwise later.
    pub is_for_good: bool,
    /// What went wrong, for people.
    pub why: String,
}

impl Subject<'_> {
    /// Plans for it. With `function` also finds the function of this name.
    ///
    /// # Errors
    ///
    /// Where it cannot be read in time, or is no server's executable, or has no such function.
    pub fn plan(&self, function: Option<&str>) -> Result<Planned, Failure> {
        let identified = self.identify()?;
        self.plan_identified(identified, function)
    }

    fn identify(&self) -> Result<Identified, Failure> {
        let waits = (self.executable.id().device(), None);
        process::ask(
            Some(self.executable),
            self.exe,
            waits,
            ["--identify".into()],
        )
    }

    /// Reads what stacks are unwound by.
    ///
    /// # Errors
    ///
    /// As [`Self::plan`].
    pub fn code(&self) -> Result<CodeFile, Failure> {
        let identified = self.identify()?;
        self.ask(identified, Some("--code".into()))
    }

    fn plan_identified(
        &self,
        identified: Identified,
        function: Option<&str>,
    ) -> Result<Planned, Failure> {
        let function = function.map(|name| format!("--function={name}").into());
        let planned: Planned = self.ask(identified, function)?;
        match planned.is_possible(self.executable) {
            true => Ok(planned),
            false => Err(Failure {
                reason: Reason::Planning,
                is_for_good: true,
                why: format!("what was said of {} cannot be a plan", self.exe.display()),
            }),
        }
    }

    fn ask<T: BorshDeserialize>(
        &self,
        identified: Identified,
        option: Option<OsString>,
    ) -> Result<T, Failure> {
        let names = identified.names.as_ref();
        let places = names.map(|names| debug_places(self.debug_dirs, names, self.exe, self.root));
        let places = places.into_iter().flatten();
        let debug_files = places.flat_map(|place| [place.root, place.path].map(OsString::from));
        let waits = (self.executable.id().device(), Some(self.root.to_owned()));
        let arguments = option.into_iter().chain(debug_files);
        process::ask(Some(self.executable), self.exe, waits, arguments)
    }
}

/// Reads what stacks are unwound by of files that a process has mapped: each path below `root`, if that has this number on its
/// device. `None` for one that has no code, or is another file.
///
/// # Errors
///
/// Where they cannot be read in time.
pub fn code_of_mapped(
    root: &Path,
    files: &[(&Path, u64)],
) -> Result<Vec<Option<CodeFile>>, Failure> {
    let waits = (0, Some(root.to_owned()));
    let numbers = files
        .iter()
        .map(|(_, inode)| format!("--mapped={inode}").into());
    let places = files
        .iter()
        .flat_map(|(path, _)| [root.into(), (*path).into()]);
    process::ask(None, root, waits, numbers.chain(places))
}
