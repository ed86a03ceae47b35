//! The shared libraries that the agent is linked to, and the Debian packages that they are from.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::{libraries::libraries_of, process};

/// A shared library, or the loader.
pub struct Library {
    /// Where it is here, and where the loader looks for it.
    pub path: PathBuf,
    /// The package that it is from.
    pub package: Package,
}

/// A package that is installed here.
#[derive(Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub architecture: String,
}

/// Returns all that a program needs to start, including what its libraries need.
///
/// # Errors
///
/// Fails if a library is not there, or not from a Debian package.
pub fn of(program: &Path) -> Result<Vec<Library>> {
    let paths = libraries_of(program)?.into_iter();
    paths
        .map(|path| {
            let package = package_of(&path).with_context(|| {
                format!(
                    "cannot tell which Debian package {} is from: make the image on Debian",
                    path.display()
                )
            })?;
            Ok(Library { path, package })
        })
        .collect()
}

/// Returns the packages that libraries are from, each once.
pub fn packages(libraries: &[Library]) -> Vec<&Package> {
    let mut packages = Vec::new();
    for Library { package, .. } in libraries {
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}

fn package_of(file: &Path) -> Result<Package> {
    // Debian is moving /lib to /usr/lib, where its list of files then names them.
    let moved = Path::new("/usr").join(file.strip_prefix("/")?);
    let found = search(file).or_else(|_| search(&moved))?;
    let format = "--showformat=${Package} ${Version} ${Architecture}";
    let shown = process::answer_of(Command::new("dpkg-query").args(["--show", format, &found]))?;
    let [name, version, architecture] = shown.split(' ').collect::<Vec<_>>()[..] else {
        bail!("dpkg-query says {shown:?} of {found}");
    };
    Ok(Package {
        name: name.to_owned(),
        version: version.to_owned(),
        architecture: architecture.to_owned(),
    })
}

/// Returns the package that installed a file: `libc6:amd64` from `libc6:amd64: /lib64/ld-linux-x86-64.so.2`.
fn search(file: &Path) -> Result<String> {
    let answer = process::answer_of(Command::new("dpkg-query").arg("--search").arg(file))?;
    let mut owners = answer
        .lines()
        .filter(|line| !line.starts_with("diversion by"))
        .filter_map(|line| line.split_once(": "));
    let (owner, _) = owners.next().context("no package has it")?;
    Ok(owner.to_owned())
}
