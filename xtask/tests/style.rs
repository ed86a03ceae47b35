//! The style of all Rust code that rustfmt and clippy do not check.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;

/// The widest line, as in `rustfmt.toml`, which leaves comments and macros alone.
const WIDTH: usize = 120;

/// Returns the sources of all crates, with their paths from the root.
fn sources() -> Result<Vec<(PathBuf, String)>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut folders = ["agent", "agent-ebpf", "xtask"].map(|folder| root.join(folder)).to_vec();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)?;
                sources.push((path.strip_prefix(root)?.to_owned(), text));
            }
        }
    }
    ensure!(sources.len() > 100, "{} files were found", sources.len());
    Ok(sources)
}

/// Strings may be wider, as people search for what a program says; so may tables in comments.
#[test]
fn no_line_is_too_wide() -> Result<()> {
    let tokens = Regex::new(r##"(?s)//[^\n]*|'(?:\\[^']+|\\'|[^'\\])'|r#".*?"#|r"[^"]*"|"(?:\\.|[^"\\])*""##)?;
    let mut wide = Vec::new();
    for (path, text) in sources()? {
        let line_of = |at: usize| text[..at].matches('\n').count();
        let lines: Vec<&str> = text.lines().collect();
        let mut is_wide: Vec<bool> = lines.iter().map(|line| line.chars().count() > WIDTH).collect();
        if is_wide.contains(&true) {
            for token in tokens.find_iter(&text).filter(|token| token.as_str().contains('"')) {
                if !token.as_str().starts_with("//") {
                    is_wide[line_of(token.start())..=line_of(token.end())].fill(false);
                }
            }
        }
        let is_table = |line: &str| ["//! |", "/// |"].iter().any(|table| line.trim_start().starts_with(table));
        let numbered = (1..).zip(lines).zip(is_wide);
        let found = numbered.filter(|((_, line), is_wide)| *is_wide && !is_table(line));
        wide.extend(found.map(|((number, _), _)| format!("{}:{number}", path.display())));
    }
    ensure!(wide.is_empty(), "wider than {WIDTH}: {wide:#?}");
    Ok(())
}

/// `cargo +nightly fmt -- --config imports_granularity=Module` divides the others.
#[test]
fn an_import_names_one_module() -> Result<()> {
    let group_with_a_path = Regex::new(r"(?m)^ *(?:pub(?:\([\w ]+\))? )?use [\w:]+\{[^;]*(?:::|\{)[^;]*;")?;
    let mut found = Vec::new();
    for (path, text) in sources()? {
        found.extend(group_with_a_path.find_iter(&text).map(|used| format!("{}: {}", path.display(), used.as_str())));
    }
    ensure!(found.is_empty(), "more than one module: {found:#?}");
    Ok(())
}
