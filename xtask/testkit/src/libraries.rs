//! The libraries that a program needs to start, including the loader and what its libraries need.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// Returns their paths on this machine. Fails if one is not there.
pub fn of_this_machine(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = process::answer_of(Command::new("ldd").arg(program))?;
    if let Some(line) = listed.lines().find(|line| line.ends_with("not found")) {
        bail!("{} cannot be started, as a library is not here: {}", program.display(), line.trim());
    }
    // As in `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`, or the path alone.
    let paths = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

/// Returns their paths in a root directory, which may be another processor's. Fails if one is not there.
pub fn in_root(root: &Path, program: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut linked = linked_with(program)?;
    while let Some(name) = linked.pop() {
        let library = find(root, &format!("*lib*/{name}"))?;
        if !found.contains(&library) {
            linked.extend(linked_with(&library)?);
            found.push(library);
        }
    }
    Ok(found)
}

/// Returns the file in a directory whose path is like this. Takes a link only if there is no other, because it may lead
/// out of a root directory.
pub fn find(directory: &Path, path: &str) -> Result<PathBuf> {
    let mut find = Command::new("find");
    find.arg(directory).args(["!", "-type", "d", "-path", path, "-printf", "%y %p\n"]);
    let found = process::answer_of(&mut find)?;
    // The type is `f` or `l`.
    let first = found.lines().min().and_then(|line| line.split_once(' '));
    Ok(first.with_context(|| format!("{} has no {path}", directory.display()))?.1.into())
}

/// Returns the names of the libraries that an executable or a library is linked with.
fn linked_with(file: &Path) -> Result<Vec<String>> {
    let dynamic = process::answer_of(Command::new("readelf").arg("--dynamic").arg(file))?;
    // As in `0x0000000000000001 (NEEDED)  Shared library: [libc.so.6]`.
    let names = dynamic.lines().filter(|line| line.contains("(NEEDED)")).filter_map(|line| {
        let (_, name) = line.split_once('[')?;
        Some(name.trim_end_matches(']').to_owned())
    });
    Ok(names.collect())
}
