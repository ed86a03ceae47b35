//! `evictscope planner` plans for its standard input. evictscope itself starts it, so `--help` does not list it.

use std::path::PathBuf;
use std::process::ExitCode;

use evictscope_host::DebugPlace;

use crate::planning::{Question, answer};

/// Plan for the executable that is the standard input, without any privilege, for the evictscope that has started it
#[derive(clap::Args)]
pub struct Arguments {
    /// Only say which executable it is
    #[arg(long)]
    identify: bool,
    /// The function to find beside the plan
    #[arg(long)]
    function: Option<String>,
    /// What to call it
    path: PathBuf,
    /// Where its debug file may be: root directories, each with a path below it
    places: Vec<PathBuf>,
}

/// Plans and answers.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let places = arguments.places.chunks_exact(2);
    let places = places.map(|place| DebugPlace {
        root: place[0].clone(),
        path: place[1].clone(),
    });
    answer(&Question {
        path: arguments.path,
        identify: arguments.identify,
        function: arguments.function,
        places: places.collect(),
    })?;
    Ok(ExitCode::SUCCESS)
}
