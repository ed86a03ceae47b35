//! `cargo xtask matrix`: the agent on the builds that people run, and on Debian's kernels.

use anyhow::Result;
use evictscope_trials::Arguments;

use crate::package::Source;
use crate::{build, package, servers};

/// Builds the agent unless it is packed, and tries it on each build, or packs it and tries it on each kernel.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.packed {
        build::run()?;
    }
    if arguments.kernels {
        let source = if arguments.packed { Source::Packed } else { Source::Built };
        return evictscope_trials::run_kernels(arguments, || Ok(package::packages(source)?.deb));
    }
    if !arguments.packed {
        servers::provide_wheels();
        servers::provide_with_flags(|name| arguments.wanted(name));
    }
    evictscope_trials::run_builds(arguments, &servers::names())
}
