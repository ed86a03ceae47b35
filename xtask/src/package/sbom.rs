//! Bills of materials, in CycloneDX JSON: every crate in the agent and, for the image, the Debian packages beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::podman::libraries_of;
use evictscope_testkit::{process, workspace};
use serde_json::{Value, json};

use super::commit::Commit;

pub struct Bill {
    time: String,
    components: Vec<Value>,
}

impl Bill {
    /// Lists every crate in the agent and in its BPF programs, as cargo chooses them, with the digests of `Cargo.lock`.
    pub fn of_crates(commit: &Commit) -> Result<Self> {
        let mut tree = workspace::cargo();
        tree.args(["tree", "--locked", "--package", "evictscope", "--package", "evictscope-ebpf"]);
        tree.args(["--edges", "normal,no-proc-macro", "--target", "x86_64-unknown-linux-gnu"]);
        tree.args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"]);
        let tree = process::answer_of(&mut tree)?;
        let lock = fs::read_to_string(workspace::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
        let locked: Vec<&str> = lock.split("[[package]]").collect();
        let component = |line: &str| {
            let (package, license) = line.split_once('|')?;
            // Behind them comes the path of a crate of the workspace.
            let mut words = package.split_whitespace();
            let (name, version) = (words.next()?, words.next()?.trim_start_matches('v'));
            let purl = format!("pkg:cargo/{name}@{version}");
            let mut component = library(&purl, name, version);
            let license = Vec::from_iter(license.split('/').map(str::trim)).join(" OR ");
            component["licenses"] = json!([{ "expression": license }]);
            let is_of = |entry: &&&str| entry.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n"));
            if let Some((_, digest)) = locked.iter().find(is_of)?.split_once("checksum = \"") {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": digest.split('"').next() }]);
            }
            Some(component)
        };
        let lines = BTreeSet::from_iter(tree.lines().filter(|line| !line.is_empty()));
        let components: Option<_> = lines.into_iter().map(component).collect();
        let components = components.context("cargo lists a crate that is not in Cargo.lock")?;
        Ok(Self { time: commit.time.to_string(), components })
    }

    pub fn add(&mut self, libraries: &[Library]) {
        for library in libraries {
            if !self.components.contains(&library.component) {
                self.components.push(library.component.clone());
            }
        }
    }

    pub fn write_beside(&self, product: &Path) -> Result<PathBuf> {
        let path = PathBuf::from(format!("{}.cdx.json", product.display()));
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": self.time,
                "component": { "type": "application", "name": "evictscope", "version": env!("CARGO_PKG_VERSION") },
            },
            "components": self.components,
        });
        fs::write(&path, serde_json::to_string_pretty(&bill)? + "\n").context("cannot write the bill of materials")?;
        Ok(path)
    }
}

fn library(purl: &str, name: &str, version: &str) -> Value {
    json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl })
}

/// A shared library, or the loader.
pub struct Library {
    /// Where it is here, and where the loader looks for it.
    pub path: PathBuf,
    /// The Debian package that it is from.
    pub package: String,
    component: Value,
}

/// Returns all that a program needs to start, including what its libraries need. Fails if a library is not there, or
/// not from a Debian package.
pub fn of(program: &Path) -> Result<Vec<Library>> {
    let library = |path: PathBuf| {
        let why = || format!("cannot tell which Debian package {} is from: make the image on Debian", path.display());
        let shown = package_of(&path).with_context(why)?;
        from_package(path, &shown)
    };
    libraries_of(program)?.into_iter().map(library).collect()
}

/// Takes the name, the version and the architecture of the package.
fn from_package(path: PathBuf, shown: &str) -> Result<Library> {
    let [name, version, architecture] = shown.split(' ').collect::<Vec<_>>()[..] else {
        bail!("dpkg-query says {shown:?}");
    };
    // `+` and `:` have a meaning in a package URL.
    let escaped = version.replace('+', "%2B").replace(':', "%3A");
    let purl = format!("pkg:deb/debian/{name}@{escaped}?arch={architecture}");
    Ok(Library { path, package: name.to_owned(), component: library(&purl, name, version) })
}

fn package_of(file: &Path) -> Result<String> {
    // Debian is moving /lib to /usr/lib, where its list of files then names them.
    let moved = Path::new("/usr").join(file.strip_prefix("/")?);
    let found = search(file).or_else(|_| search(&moved))?;
    let format = "--showformat=${Package} ${Version} ${Architecture}";
    process::answer_of(Command::new("dpkg-query").args(["--show", format, &found]))
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
        let library = |path: &str| from_package(path.into(), "libc6 2.36-9+deb12u10 amd64");
        let mut bill = Bill { time: String::new(), components: Vec::new() };
        bill.add(&[library("/lib/libc.so.6")?, library("/lib/libm.so.6")?]);
        assert_eq!(bill.components.len(), 1);
        assert_eq!(bill.components[0]["purl"], "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64");
        Ok(())
    }
}
