//! What the packages are made of: the crates in the agent and in its BPF programs, and the Debian packages whose
//! libraries are in the image. A bill of materials names them, in CycloneDX's JSON, and [`notices`] has their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use evictscope_testkit::target::Target;
use evictscope_testkit::{debian, process, workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::commit::Commit;
use super::libraries;

/// What the BPF programs are compiled for.
const BPF: &str = "bpfel-unknown-none";

/// A crate, as `cargo metadata` describes it.
#[derive(Deserialize)]
pub struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// `None` for an own one.
    source: Option<String>,
}

impl Crate {
    /// Returns its licence in the form of SPDX, which had `/` for `OR` once.
    fn licence(&self) -> String {
        self.license.as_deref().unwrap_or("NOASSERTION").split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
    }
}

/// Returns the crates of others that are compiled into the agent or into its BPF programs.
pub fn crates() -> Result<Vec<Crate>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Crate>,
    }
    let cargo = |arguments: &[&str]| {
        process::answer_of(workspace::cargo().arg(arguments[0]).arg("--locked").args(&arguments[1..]))
    };
    let triples = Target::ALL.map(Target::triple);
    let [first, second] = triples.each_ref().map(|triple| format!("--filter-platform={triple}"));
    let described = cargo(&["metadata", "--format-version=1", &first, &second])?;
    let mut crates =
        serde_json::from_str::<Metadata>(&described).context("cannot understand `cargo metadata`")?.packages;
    let mut compiled = BTreeSet::new();
    let agents = triples.iter().map(|triple| ("evictscope", triple.as_str()));
    for (package, target) in agents.chain([("evictscope-ebpf", BPF)]) {
        let tree = cargo(&["tree", "--edges=normal", "--prefix=none", "--package", package, "--target", target])?;
        // As in `syn v2.0.119 (proc-macro) (*)`.
        compiled.extend(tree.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")));
    }
    crates.retain(|found| found.source.is_some() && compiled.contains(&format!("{} v{}", found.name, found.version)));
    crates.sort_by_key(|found| (found.name.clone(), found.version.clone()));
    Ok(crates)
}

/// Writes the bill of materials.
pub fn write(to: &Path, commit: &Commit, crates: &[Crate]) -> Result<()> {
    let mut components = BTreeMap::new();
    for found in crates {
        let url = format!("pkg:cargo/{}@{}", found.name, found.version);
        let mut component = component(&found.name, &found.version, &url);
        component["licenses"] = json!([{ "expression": found.licence() }]);
        components.insert(url, component);
    }
    for (target, package) in Target::ALL.into_iter().flat_map(|target| libraries::PACKAGES.map(|name| (target, name))) {
        let version = debian::version_in(&libraries::root(target)?, package)?;
        let encoded = version.replace('+', "%2B").replace(':', "%3A");
        let url = format!("pkg:deb/debian/{package}@{encoded}?arch={}", target.debian());
        let component = component(package, &version, &url);
        components.insert(url, component);
    }
    let agent = json!({ "type": "application", "name": "evictscope", "version": env!("CARGO_PKG_VERSION") });
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "timestamp": commit.time.to_string(), "component": agent },
        "components": components.into_values().collect::<Vec<_>>(),
    });
    fs::write(to, serde_json::to_string_pretty(&bill)? + "\n").with_context(|| format!("cannot write {}", to.display()))
}

fn component(name: &str, version: &str, url: &str) -> Value {
    json!({ "type": "library", "name": name, "version": version, "purl": url })
}

/// Returns the licences of the crates, as paragraphs of a Debian copyright file. Where a crate offers Apache's or
/// another, it has the other.
pub fn notices(crates: &[Crate]) -> Result<String> {
    let mut texts = BTreeMap::<_, Vec<_>>::new();
    for found in crates {
        let directory = found.manifest_path.parent().context("a crate without a directory")?;
        for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let chosen = !name.contains("APACHE") || !found.licence().contains(" OR ");
            if path.is_file() && chosen && ["LICEN", "COPY", "NOTICE"].iter().any(|start| name.starts_with(start)) {
                let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                texts.entry((found.licence(), text)).or_default().push(format!("{}-{}", found.name, found.version));
            }
        }
    }
    let paragraphs = texts.into_iter().map(|((licence, text), crates)| {
        let crates = crates.join(" ");
        let lines = text.lines().map(str::trim_end).map(|line| if line.is_empty() { "." } else { line });
        let text = lines.map(|line| format!(" {line}\n")).collect::<String>();
        let comment = "in the executable; its source is at https://crates.io";
        format!("\nFiles: {crates}\nCopyright: as it says\nLicense: {licence}\nComment: {comment}\n{text}")
    });
    Ok(paragraphs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_written_is_named_with_its_licence() -> Result<()> {
        let crates = crates()?;
        let has = |name: &str| crates.iter().any(|found| found.name == name);
        assert!(has("aya-ebpf") && has("inferno") && !has("evictscope") && !has("proptest"));
        assert!(notices(&crates)?.contains("License: CDDL-1.0\n"));
        Ok(())
    }
}
