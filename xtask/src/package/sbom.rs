//! Bills of materials, in CycloneDX JSON: every crate in the agent and, for the image, the Debian packages beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::podman::libraries_of;
use evictscope_testkit::{process, workspace};
use serde_json::{Value, json};

use super::commit::Commit;

pub struct Bill(Value);

impl Bill {
    /// Lists every crate in the agent. `work` is a directory that is removed later.
    pub fn of_crates(work: &Path, commit: &Commit) -> Result<Self> {
        const NAME: &str = "evictscope-sbom";
        // cargo-cyclonedx writes one beside the manifest of each member of the workspace. This happens in a copy,
        // because cargo rebuilds the agent whenever something has changed in agent-ebpf.
        let copy = work.join("sources");
        fs::create_dir(&copy).context("cannot make a directory for the bill of materials")?;
        let mut copying = Command::new("cp");
        copying.current_dir(workspace::root()).args(["--recursive", "Cargo.toml", "Cargo.lock"]);
        process::succeed(copying.args(["agent", "agent-ebpf", "xtask"]).arg(&copy))?;
        let mut list = commit.reproducibly(super::tool("cargo-cyclonedx", "0.5.9")?);
        list.args(["cyclonedx", "--format", "json", "--target", "x86_64-unknown-linux-gnu"]);
        list.args(["--override-filename", NAME, "--manifest-path"]).arg(copy.join("agent/Cargo.toml"));
        process::succeed(&mut list)?;
        let written = copy.join("agent").join(format!("{NAME}.json"));
        let text = fs::read_to_string(written).context("cargo-cyclonedx has left no bill of materials")?;
        // The crates of the workspace are named by their paths.
        let text = text.replace(&copy.display().to_string(), "/evictscope");
        Ok(Self(serde_json::from_str(&text).context("the bill of materials is not JSON")?))
    }

    pub fn add(&mut self, libraries: &[Library]) -> Result<()> {
        let components = self.0["components"].as_array_mut().context("the bill of materials lists no components")?;
        components.extend(packages(libraries).into_iter().map(|package| package.component.clone()));
        Ok(())
    }

    pub fn write_beside(&self, product: &Path) -> Result<PathBuf> {
        let mut path = product.as_os_str().to_owned();
        path.push(".cdx.json");
        let path = PathBuf::from(path);
        let text = serde_json::to_string_pretty(&self.0)? + "\n";
        fs::write(&path, text).context("cannot write the bill of materials")?;
        Ok(path)
    }
}

/// A shared library, or the loader.
pub struct Library {
    /// Where it is here, and where the loader looks for it.
    pub path: PathBuf,
    pub package: Package,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    component: Value,
}

impl Package {
    fn new(name: &str, version: &str, architecture: &str) -> Self {
        // `+` and `:` have a meaning in a package URL.
        let escaped = version.replace('+', "%2B").replace(':', "%3A");
        let purl = format!("pkg:deb/debian/{name}@{escaped}?arch={architecture}");
        let component = json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl });
        Self { name: name.to_owned(), component }
    }
}

/// Returns all that a program needs to start, including what its libraries need. Fails if a library is not there, or
/// not from a Debian package.
pub fn of(program: &Path) -> Result<Vec<Library>> {
    let library = |path: PathBuf| {
        let why = || format!("cannot tell which Debian package {} is from: make the image on Debian", path.display());
        Ok(Library { package: package_of(&path).with_context(why)?, path })
    };
    libraries_of(program)?.into_iter().map(library).collect()
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
    Ok(Package::new(name, version, architecture))
}

/// Returns the package that installed a file: `libc6:amd64` from `libc6:amd64: /lib64/ld-linux-x86-64.so.2`.
fn search(file: &Path) -> Result<String> {
    let answer = process::answer_of(Command::new("dpkg-query").arg("--search").arg(file))?;
    let mut owners = answer.lines().filter(|line| !line.starts_with("diversion by"));
    let (owner, _) = owners.find_map(|line| line.split_once(": ")).context("no package has it")?;
    Ok(owner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_listed_once_with_its_version() -> Result<()> {
        let library = |path: &str| Library {
            path: PathBuf::from(path),
            package: Package::new("libc6", "2.36-9+deb12u10", "amd64"),
        };
        let libraries = [library("/lib/libc.so.6"), library("/lib/libm.so.6")];
        let mut bill = Bill(json!({ "components": [] }));
        bill.add(&libraries)?;
        let components = bill.0["components"].as_array().map_or(0, Vec::len);
        assert_eq!(components, 1);
        assert_eq!(bill.0["components"][0]["purl"], "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64");
        Ok(())
    }
}
