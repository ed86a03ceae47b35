//! Compiles small programs, if there is a compiler.

use std::path::Path;
use std::process::Command;

use crate::skip::skip;
use crate::workspace;

const FIXTURES: &str = "agent/plan/tests/fixtures";

/// Runs a tool in a folder. Returns `false` if it is not installed.
pub fn run(folder: &Path, tool: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(tool);
    match command.args(arguments).current_dir(folder).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(&format!("{tool} is not installed")).unwrap_or_else(|error| panic!("{error}"));
            false
        }
        Err(error) => panic!("{tool}: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {arguments:?}: {said}");
            true
        }
    }
}

/// Compiles `source`, which can include what is in `agent/plan/tests/fixtures`. Returns `None` if the compiler is not
/// installed.
pub fn compile(compiler: &str, source: &str, options: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let file = |name| folder.path().join(name);
    std::fs::write(file("program.c"), source).unwrap_or_else(|error| panic!("{error}"));
    let include = format!("-I{}", workspace::root().join(FIXTURES).display());
    let fixed = ["-w", &include, "-o", "program", "program.c"];
    run(folder.path(), compiler, &[&fixed, options].concat())
        .then(|| std::fs::read(file("program")).unwrap_or_else(|error| panic!("{error}")))
}
