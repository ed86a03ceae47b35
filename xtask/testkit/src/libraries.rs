//! The shared libraries that a program is linked to.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// Returns the paths of all that a program needs to start, including the loader and what its libraries need.
///
/// # Errors
///
/// Fails if a library is not there.
pub fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = process::answer_of(Command::new("ldd").arg(program))?;
    paths(&listed).with_context(|| format!("{} cannot be started", program.display()))
}

/// Returns the paths in what `ldd` prints: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`, or the path alone.
fn paths(listed: &str) -> Result<Vec<PathBuf>> {
    if let Some(line) = listed.lines().find(|line| line.ends_with("not found")) {
        bail!("a library is not here: {}", line.trim());
    }
    let paths = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_libraries_and_of_the_loader_are_read() -> Result<()> {
        let listed = "\tlinux-vdso.so.1 (0x00007f4ad1197000)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f4acfe1e000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f4ad1199000)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(paths(listed)?, expected.map(PathBuf::from));
        assert!(paths("\tlibx.so.1 => not found\n").is_err());
        Ok(())
    }
}
