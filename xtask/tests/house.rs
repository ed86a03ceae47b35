//! The structure of the agent's crates: which others each may depend on, and that no files import each other in a
//! circle. The same for the modules of the agent's own crate. And the length of the documentation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{DependencyKind, MetadataCommand};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// The crates from the bottom up: each may depend only on those before it.
const ORDER: [&str; 10] = [
    "evictscope-abi",
    "evictscope-model",
    "evictscope-machine",
    "evictscope-plan",
    "evictscope-telemetry",
    "evictscope-host",
    "evictscope-probes",
    "evictscope-records",
    "evictscope-web",
    "evictscope",
];

/// The modules of the agent's own crate, in the same way.
const MODULES: [&str; 11] =
    ["clock", "terminal", "text", "planning", "keys", "profile", "trace", "client", "live", "watch", "cli"];

/// The root file of each crate, except for the smallest.
const FIRST_PAGES: [&str; 9] = [
    "agent/model/src/lib.rs",
    "agent/machine/src/lib.rs",
    "agent/plan/src/lib.rs",
    "agent/telemetry/src/lib.rs",
    "agent/host/src/lib.rs",
    "agent/probes/src/lib.rs",
    "agent/records/src/lib.rs",
    "agent/web/src/lib.rs",
    "agent/src/main.rs",
];

/// What opens a file, or reads the memory of another process, outside of /proc and /sys.
const OPENERS: [&str; 10] = [
    "File::open(",
    "OpenOptions::new(",
    "fs::read(",
    "fs::read_dir(",
    "fs::read_to_string(",
    "openat(",
    "openat2(",
    "read_at(",
    "read_exact_at(",
    "words.fill(",
];

/// The files of the agent that do so, and what bounds it. Everything else is opened by the first of these, and read
/// through the second.
const BOUNDED: [(&str, &str); 17] = [
    ("agent/host/src/regular.rs", "opens nothing but regular files, and reads them up to a size"),
    ("agent/src/keys/memory.rs", "takes the steps and the time of a walk from its limit"),
    ("agent/host/src/limits.rs", "control groups are the kernel's"),
    ("agent/host/src/executable.rs", "found with O_PATH; MAX_BYTES"),
    ("agent/host/src/debug_file.rs", "MAX_PACKAGES names, MAX_BYTES in all"),
    ("agent/host/src/breakpoints.rs", "MOST_PAGES"),
    ("agent/host/src/memory.rs", "the words of a plan, or what a walk asks for"),
    ("agent/host/src/scheduling.rs", "one line of the kernel's"),
    ("agent/host/src/confinement.rs", "a setting of the kernel"),
    ("agent/probes/src/kernel_types.rs", "the kernel's own types"),
    ("agent/probes/src/programs.rs", "a number of the kernel's"),
    ("agent/records/src/folder.rs", "MOST_NAMES of the agent's own folder"),
    ("agent/src/cli/compare.rs", "LONGEST_PROFILE of what a user names"),
    ("agent/src/cli/selftest/child.rs", "the log of a server of its own"),
    ("agent/src/client/mod.rs", "LONGEST_FILE of what a user names"),
    ("agent/src/profile/mapped_files.rs", "MAX_VDSO"),
    ("agent/src/profile/mod.rs", "a setting of the kernel"),
];

type Segments = Vec<String>;

struct Source {
    file: PathBuf,
    /// Names that it re-exports.
    exported: Vec<Segments>,
    /// Names that it imports.
    imported: Vec<Segments>,
}

/// The files of a crate, by the paths of their modules.
type Modules = BTreeMap<Segments, Source>;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn a_crate_stands_on_those_below_it_only() -> Result<()> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec()?;
    for (height, name) in ORDER.iter().enumerate() {
        let package = metadata.packages.iter().find(|package| package.name == *name);
        let package = package.with_context(|| format!("there is no crate {name}"))?;
        for dependency in package.dependencies.iter().filter(|other| other.kind != DependencyKind::Development) {
            let is_above = ORDER[height..].contains(&dependency.name.as_str());
            ensure!(!is_above, "{name} stands on {}", dependency.name);
        }
    }
    Ok(())
}

#[test]
fn a_module_of_the_agent_stands_on_those_below_it_only() -> Result<()> {
    let mut modules = Modules::new();
    read(&root().join("agent/src/main.rs"), Vec::new(), &mut modules)?;
    let height = |file: &Path| {
        let module = modules.iter().find(|(_, source)| source.file == file).and_then(|(path, _)| path.first());
        module.map(|module| (MODULES.iter().position(|listed| listed == module), module.as_str()))
    };
    let mut wrong = Vec::new();
    for (module, source) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        let own = height(&source.file).context("no module")?;
        for path in &source.imported {
            let Some(other) = owner(&modules, module, path, 0).and_then(height) else {
                continue;
            };
            if other.1 != own.1 && (own.0.is_none() || other.0.is_none() || other.0 > own.0) {
                wrong.push(format!("{} imports {}", source.file.display(), path.join("::")));
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn what_opens_a_file_or_reads_memory_has_a_bound() -> Result<()> {
    let mut found = Vec::new();
    for entry in FIRST_PAGES {
        let mut modules = Modules::new();
        read(&root().join(entry), Vec::new(), &mut modules)?;
        for source in modules.values() {
            let text = fs::read_to_string(&source.file)?;
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines();
            let mut opens = code.filter(|line| {
                let is_kernels = line.contains("\"/proc") || line.contains("\"/sys");
                !is_kernels && OPENERS.iter().any(|opener| line.contains(opener))
            });
            if opens.next().is_some() {
                found.push(source.file.strip_prefix(root())?.display().to_string());
            }
        }
    }
    let mut listed = BOUNDED.map(|(file, _)| file);
    listed.sort_unstable();
    found.sort_unstable();
    ensure!(found == listed, "{found:#?}");
    Ok(())
}

#[test]
fn no_files_import_each_other_in_a_circle() -> Result<()> {
    for entry in FIRST_PAGES {
        let mut modules = Modules::new();
        read(&root().join(entry), Vec::new(), &mut modules)?;
        ensure!(modules.len() > 5, "{entry} has few files");
        let mut imports = DiGraphMap::<&Path, ()>::new();
        for (module, source) in &modules {
            for path in &source.imported {
                if let Some(to) = owner(&modules, module, path, 0)
                    && to != source.file
                {
                    imports.add_edge(source.file.as_path(), to, ());
                }
            }
        }
        let circles: Vec<_> = tarjan_scc(&imports).into_iter().filter(|files| files.len() > 1).collect();
        ensure!(circles.is_empty(), "{circles:#?}");
    }
    Ok(())
}

#[test]
fn the_documentation_has_no_more_words_than_somebody_reads() -> Result<()> {
    const MOST: usize = 17_000;
    let mut words = 0;
    for folder in ["docs", "docs/runbooks"] {
        for entry in fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                words += fs::read_to_string(&path)?.split_whitespace().count();
            }
        }
    }
    ensure!(words <= MOST, "{words} words in docs, {MOST} at most: say nothing twice");
    Ok(())
}

/// Reads a file and those of its modules, except for tests.
fn read(file: &Path, module: Segments, modules: &mut Modules) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
    let is_first = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
    let folder = if is_first { file.parent().context("no folder")?.to_owned() } else { file.with_extension("") };
    let mut source = Source { file: file.to_owned(), exported: Vec::new(), imported: Vec::new() };
    for item in &parsed.items {
        match item {
            Item::Use(used) if !is_test(&used.attrs) => {
                let is_own = matches!(used.vis, Visibility::Inherited);
                let paths = if is_own { &mut source.imported } else { &mut source.exported };
                flatten(&used.tree, &Vec::new(), paths);
            }
            Item::Mod(child) if child.content.is_none() && !is_test(&child.attrs) => {
                let name = child.ident.to_string();
                let files = [folder.join(&name).with_extension("rs"), folder.join(&name).join("mod.rs")];
                let found = files.iter().find(|file| file.exists()).with_context(|| format!("no file of {name}"))?;
                read(found, [module.clone(), vec![name]].concat(), modules)?;
            }
            Item::Mod(_) => {}
            other => Paths(&mut source.imported).visit_item(other),
        }
    }
    modules.insert(module, source);
    Ok(())
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(is_test)
}

/// Adds the paths that a `use` names.
fn flatten(tree: &UseTree, before: &Segments, paths: &mut Vec<Segments>) {
    let with = |name: String| [before.clone(), vec![name]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(path.ident.to_string()), paths),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, paths)),
        UseTree::Name(name) if name.ident == "self" => paths.push(before.clone()),
        UseTree::Name(name) => paths.push(with(name.ident.to_string())),
        UseTree::Rename(renamed) => paths.push(with(renamed.ident.to_string())),
        UseTree::Glob(_) => paths.push(before.clone()),
    }
}

/// Collects the paths in code that begin with `crate` or `super`.
struct Paths<'a>(&'a mut Vec<Segments>);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // `pub(super)` has a path, too.
        if segments.len() > 1 && ["crate", "super"].contains(&segments[0].as_str()) {
            self.0.push(segments);
        }
        syn::visit::visit_path(self, path);
    }
}

/// Returns the file that defines what a path in `module` names, or `None` if it is in another crate. Follows
/// re-exports.
fn owner<'a>(modules: &'a Modules, module: &Segments, path: &[String], depth: usize) -> Option<&'a Path> {
    let mut at = module.clone();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()?),
            "self" => {}
            _ => break,
        }
        rest = after;
    }
    let is_relative = rest.len() == path.len();
    let begun = at.len();
    while let Some((first, after)) = rest.split_first() {
        at.push(first.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
        rest = after;
    }
    if is_relative && at.len() == begun {
        return None;
    }
    let source = modules.get(&at)?;
    let exported = rest.first().and_then(|name| source.exported.iter().find(|path| path.last() == Some(name)));
    match exported.filter(|_| depth < 8) {
        Some(path) => owner(modules, &at, path, depth + 1),
        None => Some(&source.file),
    }
}
