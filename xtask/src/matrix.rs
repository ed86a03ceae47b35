//! `cargo xtask matrix`: the agent on the builds that people run, and on Debian's kernels.

use anyhow::Result;
use evictscope_trials::Arguments;

use crate::package::Source;
use crate::{build, package, servers, source};

/// Builds the agent unless it is packed, and tries it on each build, or packs it and tries it on each kernel.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.packed {
        build::run()?;
    }
    if arguments.kernels {
        let source = match arguments.packed {
            true => Source::Packed,
            false => Source::Built,
        };
        return evictscope_trials::run_kernels(arguments, || Ok(package::packages(source)?.deb));
    }
    if !arguments.packed {
        servers::provide()?;
        source::provide_with_flags(|name| arguments.wanted(name));
    }
    let names = [&servers::names()[..], &source::names_with_flags()].concat();
    evictscope_trials::run_builds(arguments, &names)
}
