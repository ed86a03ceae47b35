//! Plans that are made in processes of their own, one for each executable that is looked at.
//!
//! An executable is not trusted, nor is its file system. So this process never opens one to be read, which may wait for ever; it starts
//! itself anew ([`process`]) with the file as standard input. That process opens the file and what may be its debug file, gives up all
//! that it may do ([`confined`]), and only then reads, plans and answers ([`mod@answer`]). [`Planner`] is the daemon's.

mod answer;
mod confined;
mod planner;
mod process;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use evictscope_host::{Executable, debug_places};
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
        process::ask(self.executable, self.exe, None, ["--identify".into()])
    }

    fn plan_identified(
        &self,
        identified: Identified,
        function: Option<&str>,
    ) -> Result<Planned, Failure> {
        let names = identified.names.as_ref();
        let places = names.map(|names| debug_places(self.debug_dirs, names, self.exe, self.root));
        let function = function.map(|name| format!("--function={name}").into());
        let places = places.into_iter().flatten();
        let debug_files = places.flat_map(|place| [place.root, place.path].map(OsString::from));
        let arguments = function.into_iter().chain(debug_files);
        let root = Some(self.root);
        let planned: Planned = process::ask(self.executable, self.exe, root, arguments)?;
        match planned.is_possible(self.executable) {
            true => Ok(planned),
            false => Err(Failure {
                reason: Reason::Planning,
                is_for_good: true,
                why: format!("what was said of {} cannot be a plan", self.exe.display()),
            }),
        }
    }
}
