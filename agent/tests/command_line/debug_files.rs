//! The command line and separate debug files. Needs no root; without a compiler the test is skipped, and says so.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::{evictscope, inspect},
    compiler,
    skip::skip,
};

/// A stripped program, its debug file, and the path of that file below a directory of debug files.
struct Stripped {
    program: PathBuf,
    debug: Vec<u8>,
    place: PathBuf,
}

/// Compiles the program with the structure of Redis; `None` if a tool is missing.
fn stripped(directory: &Path, level: &str) -> anyhow::Result<Option<Stripped>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plan/tests/fixtures/evict.c");
    let source = source.to_str().context("a path that is no text")?;
    let whole = format!("whole{level}");
    let compile = ["-g", "-w", level, "-DFORM=__attribute__((noinline))"];
    for (tool, arguments) in [
        ("gcc", &[&compile[..], &["-o", &whole, source]].concat()[..]),
        ("objcopy", &["--only-keep-debug", &whole, "debug"]),
        ("strip", &["--strip-all", "-o", "program", &whole]),
    ] {
        if !compiler::run(directory, tool, arguments) {
            skip(&format!("{tool} is not installed"))?;
            return Ok(None);
        }
    }
    let program = directory.join("program");
    let plan = inspect(&program)?;
    let build_id = plan["build_id"].as_str().context("no build id")?;
    let (first, rest) = build_id.split_at(2);
    Ok(Some(Stripped {
        program,
        debug: std::fs::read(directory.join("debug"))?,
        place: PathBuf::from(format!(".build-id/{first}/{rest}.debug")),
    }))
}

fn json(output: &Output) -> anyhow::Result<serde_json::Value> {
    serde_json::from_slice(&output.stdout).context("what inspect printed is no JSON")
}

/// Returns what can be read at the goal site.
fn quantities(plan: &serde_json::Value) -> anyhow::Result<&Vec<serde_json::Value>> {
    let quantities = plan["functions"][0]["inner"]["quantities"].as_array();
    let quantities = quantities.context("no inner site")?;
    ensure!(quantities.len() == 5, "{quantities:?}");
    Ok(quantities)
}

#[test]
fn inspect_finds_the_debug_file_and_ignores_that_of_another_build() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let other = tempfile::tempdir()?;
    let store = directory.path().join("store");
    let (Some(own), Some(other)) = (stripped(directory.path(), "-O2")?, stripped(other.path(), "-O1")?) else {
        return Ok(());
    };
    let file = store.join(&own.place);
    std::fs::create_dir_all(file.parent().context("no parent")?)?;
    std::fs::write(&file, &own.debug)?;
    let inspect = || evictscope().args(["inspect", "--json", "--debug-dir"]).arg(&store).arg(&own.program).output();
    let output = inspect()?;
    ensure!(output.status.code() == Some(0), "{}", output.status);
    let plan = json(&output)?;
    ensure!(plan["debug_file"].as_str() == file.to_str(), "{plan}");
    for quantity in quantities(&plan)? {
        ensure!(quantity["method"] == "both", "{quantity}");
    }

    std::fs::write(&file, &other.debug)?;
    let output = inspect()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("debug file ignored"), "{said}");
    ensure!(said.contains("its build id is"), "{said}");
    let plan = json(&output)?;
    ensure!(plan["debug_file"].is_null(), "{plan}");
    for quantity in quantities(&plan)? {
        ensure!(quantity["method"] != "both", "{quantity}");
    }
    Ok(())
}
