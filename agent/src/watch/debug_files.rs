//! The option `--debug-dir`, and the search for a server's debug file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::host::{Search, Wanted, find_debug_file};
use evictscope_plan::DebugFileNames;

/// Where debug files are looked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DebugFiles {
    /// Look for separate debug files below DIR (.build-id/xx/yyyy.debug, or the path of the
    /// executable) before /usr/lib/debug; may be given several times
    #[arg(long = "debug-dir", value_name = "DIR")]
    directories: Vec<PathBuf>,
}

impl DebugFiles {
    /// To be looked for below these directories first.
    pub fn below(directories: Vec<PathBuf>) -> Self {
        Self { directories }
    }

    /// The debug file of the executable that process `pid` runs: it is called `exe` there, and its
    /// content is `data`.
    ///
    /// # Errors
    ///
    /// Where `data` is no executable.
    pub fn find_for_process(&self, data: &[u8], exe: &Path, pid: u32) -> anyhow::Result<Search> {
        self.find(data, exe, &PathBuf::from(format!("/proc/{pid}/root")))
    }

    /// The debug file of the executable at `exe`, as seen from the root directory `root`, whose
    /// content is `data`; nothing where it needs none.
    ///
    /// # Errors
    ///
    /// Where `data` is no executable.
    pub fn find(&self, data: &[u8], exe: &Path, root: &Path) -> anyhow::Result<Search> {
        let Some(names) = DebugFileNames::of(data)
            .with_context(|| format!("cannot plan for {}", exe.display()))?
        else {
            return Ok(Search::default());
        };
        let wanted = Wanted {
            exe,
            root,
            build_id: names.build_id.as_deref(),
            link: names.link.as_deref(),
        };
        Ok(find_debug_file(&self.directories, wanted, |data| {
            names.check(data).map_err(|why| why.to_string())
        }))
    }
}
