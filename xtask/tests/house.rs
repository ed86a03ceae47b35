//! The structure of the agent's crates: which others each may depend on, and that no files import each other in a
//! circle. The same for the modules of the agent's own crate. And the length of the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{DependencyKind, MetadataCommand};
use regex::Regex;

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

/// What opens a file, or reads the memory of another process, outside of /proc and /sys.
const OPENERS: &str = "File::open( OpenOptions::new( fs::read( fs::read_dir( fs::read_to_string( openat( openat2( read_at( \
     read_exact_at( words.fill(";

/// The files of the agent that do so, and what bounds it. Everything else is opened by the first of these, and read
/// through the second.
const BOUNDED: [(&str, &str); 19] = [
    ("agent/host/src/regular.rs", "opens nothing but regular files, and reads them up to a size"),
    ("agent/src/keys/memory.rs", "takes the steps and the time of a walk from its limit"),
    ("agent/src/watch/commands.rs", "MAX_ENTRIES of MAX_ENTRY bytes of a plan"),
    ("agent/host/src/container_name.rs", "MOST_LINKS names; files by the first"),
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

/// What only the rooms of the instruction sets in `machine/src/isa` name: what decodes them, and registers, by their
/// names, or as so many.
const OF_ONE_SET: &str =
    r"(?i)\biced|x86|\b[er](flags|[abcd]x|[sd]i|[sbi]p)\b|\br(8|9|1[0-5])d?\b|; *16\]|\.\.=?1[56]\b";
/// The modules of the crate of machine code that know no instruction set; nor does the next crate.
const OF_ALL_SETS: [&str; 6] = ["code", "dwarf", "flow", "ir", "sites", "stacks"];

type Segments = Vec<String>;

struct Source {
    file: PathBuf,
    /// Its text, without comments, and up to the tests.
    code: String,
    /// Names that it re-exports.
    exported: Vec<Segments>,
    /// Names that it imports, or calls by a path.
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
    let modules = modules("evictscope")?;
    let height = |module: &str| MODULES.iter().position(|listed| *listed == module);
    let mut wrong = Vec::new();
    for (module, source) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        for path in &source.imported {
            let Some(other) = owner(&modules, module, path, 0).and_then(|other| other.first()) else {
                continue;
            };
            if *other != module[0] && (height(&module[0]) <= height(other) || height(other).is_none()) {
                wrong.push(format!("{} imports {}", source.file.display(), path.join("::")));
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn what_opens_a_file_or_reads_memory_has_a_bound() -> Result<()> {
    let mut found = BTreeSet::new();
    for name in &ORDER[1..] {
        for Source { file, code, .. } in modules(name)?.values() {
            let mut elsewhere = code.lines().filter(|line| !line.contains("\"/proc") && !line.contains("\"/sys"));
            if elsewhere.any(|line| OPENERS.split(' ').any(|opener| line.contains(opener))) {
                found.insert(file.strip_prefix(root())?.display().to_string());
            }
        }
    }
    ensure!(found == BOUNDED.map(|(file, _)| file.to_owned()).into(), "{found:#?}");
    Ok(())
}

#[test]
fn only_its_room_knows_an_instruction_set() -> Result<()> {
    let names = Regex::new(OF_ONE_SET)?;
    let mut found = Vec::new();
    for name in &ORDER[1..] {
        for (module, Source { file, code, .. }) in modules(name)? {
            let is_room = module.starts_with(&["isa".to_owned(), "x86_64".to_owned()]);
            let knows_none = match *name {
                "evictscope-machine" => module.first().is_some_and(|first| OF_ALL_SETS.contains(&first.as_str())),
                name => name == "evictscope-plan",
            };
            let names = |line: &&str| line.contains("iced_x86") || knows_none && names.is_match(line);
            let lines = code.lines().filter(|line| !is_room && names(line));
            found.extend(lines.map(|line| format!("{}: {}", file.display(), line.trim())));
        }
    }
    ensure!(found.is_empty(), "{found:#?}");
    Ok(())
}

#[test]
fn no_files_import_each_other_in_a_circle() -> Result<()> {
    // The smallest one is without modules.
    for name in &ORDER[1..] {
        let modules = modules(name)?;
        ensure!(modules.len() > 5, "{name} has few files");
        let mut imports: BTreeMap<&Segments, BTreeSet<&Segments>> = BTreeMap::new();
        for (module, source) in &modules {
            let owners = source.imported.iter().filter_map(|path| owner(&modules, module, path, 0));
            imports.insert(module, owners.filter(|owner| *owner != module).collect());
        }
        // What imports nothing that is left is in no circle.
        let mut before = usize::MAX;
        while imports.len() < before {
            before = imports.len();
            imports.retain(|_, imported| !imported.is_empty());
            let left: BTreeSet<_> = imports.keys().copied().collect();
            imports.values_mut().for_each(|imported| imported.retain(|module| left.contains(module)));
        }
        ensure!(imports.is_empty(), "in circles of {name}, or importing what is: {imports:#?}");
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

/// What the text of a file is searched for.
struct Patterns {
    modules_of_tests: Regex,
    modules: Regex,
    imports: Regex,
    paths: Regex,
}

/// Reads the files of a crate, except for tests.
fn modules(name: &str) -> Result<Modules> {
    let patterns = Patterns {
        modules_of_tests: Regex::new(r"#\[cfg\(test\)\]\s+(?:pub(?:\(\w+\))? )?mod \w+;")?,
        modules: Regex::new(r"(?m)^(?:pub(?:\(\w+\))? )?mod (\w+);")?,
        // `tests/style.rs` ensures that no group has a path in it.
        imports: Regex::new(r"(?m)^(pub(?:\(\w+\))? )?use ([\w:]+?)(?:::(\*|\{[^}]*\}))?(?: as \w+)?;")?,
        // The first form is what is no path: a string.
        paths: Regex::new(r#""[^"\n]*"|\b(?:crate|super)(?:::\w+)+"#)?,
    };
    let mut modules = Modules::new();
    let first_page = match name.strip_prefix("evictscope-") {
        Some(folder) => root().join("agent").join(folder).join("src/lib.rs"),
        None => root().join("agent/src/main.rs"),
    };
    read(&first_page, Vec::new(), &patterns, &mut modules)?;
    Ok(modules)
}

fn read(file: &Path, module: Segments, patterns: &Patterns, modules: &mut Modules) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let text = patterns.modules_of_tests.replace_all(&text, "");
    let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    let mut source = Source {
        file: file.to_owned(),
        code: lines.flat_map(|line| [line, "\n"]).collect(),
        exported: Vec::new(),
        imported: Vec::new(),
    };
    let segments = |path: &str| path.split("::").map(str::to_owned).collect::<Segments>();
    for found in patterns.imports.captures_iter(&source.code) {
        let names = found.get(3).map_or("self", |group| group.as_str().trim_matches(['{', '}']));
        let paths = names.split(',').filter_map(|name| name.split_whitespace().next());
        let paths = paths.map(|name| match name {
            "self" | "*" => segments(&found[2]),
            name => segments(&format!("{}::{name}", &found[2])),
        });
        if found.get(1).is_some() { &mut source.exported } else { &mut source.imported }.extend(paths);
    }
    let code = patterns.imports.replace_all(&source.code, "");
    let paths = patterns.paths.find_iter(&code).map(|path| path.as_str()).filter(|path| !path.starts_with('"'));
    source.imported.extend(paths.map(segments));

    let is_first = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
    let folder = if is_first { file.parent().context("no folder")?.to_owned() } else { file.with_extension("") };
    for found in patterns.modules.captures_iter(&source.code) {
        let path = folder.join(&found[1]);
        let files = [path.with_extension("rs"), path.join("mod.rs")];
        let child = files.iter().find(|file| file.exists()).with_context(|| format!("no file {}", path.display()))?;
        read(child, [module.clone(), vec![found[1].to_owned()]].concat(), patterns, modules)?;
    }
    modules.insert(module, source);
    Ok(())
}

/// Returns the module whose file defines what a path in `module` names, or `None` if it is in another crate. Follows
/// re-exports.
fn owner<'a>(modules: &'a Modules, module: &Segments, path: &[String], depth: usize) -> Option<&'a Segments> {
    let mut at = module.clone();
    let mut rest = path;
    let mut is_inside = false;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()?),
            "self" => {}
            name => {
                at.push(name.to_owned());
                if !modules.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
        }
        is_inside = true;
        rest = after;
    }
    let (found, source) = modules.get_key_value(&at).filter(|_| is_inside)?;
    let exported = rest.first().and_then(|name| source.exported.iter().find(|path| path.last() == Some(name)));
    match exported.filter(|_| depth < 8) {
        Some(path) => owner(modules, found, path, depth + 1),
        None => Some(found),
    }
}
