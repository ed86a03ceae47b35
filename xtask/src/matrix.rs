//! `cargo xtask matrix --kernels`: the packaged agent on Debian's kernels.

use anyhow::Result;
use evictscope_matrix::Arguments;

use crate::package;

/// Packs the agent unless that is done, and tries the package out on each kernel.
pub fn run(arguments: &Arguments) -> Result<()> {
    evictscope_matrix::run(arguments, &package::deb(arguments.packed)?)
}
