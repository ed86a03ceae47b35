//! Where things are in this checkout, and the cargo that runs this.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context as _, Result, ensure};

/// The variable that names another checkout of the same commit, for a task to work on in place of its own.
pub const CHECKOUT: &str = "EVICTSCOPE_CHECKOUT";

pub fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os(CHECKOUT) {
        Some(other) => other.into(),
        None => {
            let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
            manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
        }
    });
    &ROOT
}

/// How the variables begin that cargo sets for a program that it runs, from its package and `.cargo/config.toml`.
const OF_CALLER: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "RUSTC_BOOTSTRAP"];

/// Returns the cargo that runs this program, at the root of the checkout.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // The cargo that runs this program has set them. If they stayed, build scripts that look at them, such as ring's,
    // would run again under each of the two cargos, and half of all crates would be rebuilt.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_CALLER.iter().any(|begin| text.starts_with(begin)) {
            command.env_remove(&name);
        }
    }
    command
}

pub fn target_directory() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec();
    Ok(metadata.context("cannot ask cargo for the target directory")?.target_directory.into_std_path_buf())
}

/// Returns the folder of this name below the target directory, and makes it.
pub fn target_folder(name: &str) -> Result<PathBuf> {
    let folder = target_directory()?.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Returns the path of the agent's release binary, which `cargo xtask build` makes.
pub fn agent_binary() -> Result<PathBuf> {
    Ok(target_directory()?.join("release/evictscope"))
}

/// Returns the path of the agent that tests run, which a plain `cargo build` makes.
pub fn agent_of_tests() -> Result<PathBuf> {
    Ok(target_directory()?.join("debug/evictscope"))
}

pub fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let list = || fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut entries = list().with_context(|| format!("cannot list {}", directory.display()))?;
    entries.sort();
    Ok(entries)
}

/// Returns the files in a directory that have this extension, sorted by name. Fails if there is none.
pub fn files_ending(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = entries(directory)?;
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    ensure!(!files.is_empty(), "there is no *.{extension} in {}", directory.display());
    Ok(files)
}
