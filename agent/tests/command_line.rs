//! The command line, which needs neither root nor a server: what is wrong, and what `inspect` says. Without a compiler
//! the test of debug files is skipped, and says so.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use evictscope_testkit::agent::{evictscope, evictscope_without_privileges, inspect};
use evictscope_testkit::process::Owned;
use evictscope_testkit::{compiler, servers};
use serde_json::Value;

/// Checks the exit code of a command, and returns what it writes to stdout and stderr.
fn exits(command: &mut Command, code: i32) -> anyhow::Result<(String, String)> {
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    let status = output.status;
    ensure!(status.code() == Some(code), "{command:?}: {status} {printed}{errors}");
    Ok((printed, errors))
}

#[test]
fn without_root_each_command_that_attaches_says_what_is_missing() -> anyhow::Result<()> {
    for arguments in [&["run", "--listen", "127.0.0.1:0"][..], &["check"], &["selftest"]] {
        let mut command = evictscope_without_privileges();
        let (printed, errors) = exits(command.args(arguments), 1)?;
        let all = printed + &errors;
        for part in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "root"] {
            ensure!(all.contains(part), "{arguments:?}: {all}");
        }
    }
    Ok(())
}

/// What root made there, the service's user could not write.
#[test]
fn check_leaves_an_empty_directory_of_records_empty() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777))?;
    let mut command = evictscope_without_privileges();
    let (printed, _) = exits(command.args(["check", "--state-dir"]).arg(directory.path()), 1)?;
    ensure!(printed.contains("records: kept in"), "{printed}");
    ensure!(std::fs::read_dir(directory.path())?.next().is_none(), "{printed}");
    Ok(())
}

#[test]
fn a_wrong_configuration_exits_with_2() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config.toml");
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
    std::fs::write(directory.path().join("web.yml"), web)?;
    for (text, arguments, code, printed) in [
        ("listen = \"127.0.0.1:1\"\n", &["--check-config"][..], 0, "is valid"),
        ("\nlisen = \"127.0.0.1:1\"\n", &["--check-config"], 2, "line 2, lisen: unknown field"),
        // Also without --check-config, and before anything else is tried.
        ("web-config = \"web.yml\"\n", &[], 2, "server.crt"),
        // The command line wins. The address is from a range for documentation.
        (
            "listen = \"127.0.0.1:1\"\n",
            &["--listen", "198.51.100.1:9739"],
            1,
            "198.51.100.1:9739 is not an address of this host",
        ),
        // The file wins over the default.
        ("listen = \"198.51.100.2:9739\"\n", &[], 1, "198.51.100.2:9739 is not an address of this host"),
    ] {
        std::fs::write(&file, text)?;
        let mut command = evictscope();
        command.args(["run", "--config"]).arg(&file).args(arguments);
        let (out, errors) = exits(&mut command, code)?;
        let all = out + &errors;
        ensure!(all.contains(printed), "{text}: {all}");
    }
    let missing = ["run", "--check-config", "--config", "/nowhere/config.toml"];
    exits(evictscope().args(missing), 2)?;
    Ok(())
}

#[test]
fn what_cannot_be_done_is_named_and_a_usage_error_exits_with_2() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (folder, nonsense) = (directory.path().to_string_lossy(), directory.path().join("nonsense"));
    std::fs::write(&nonsense, "not an executable at all")?;
    for (arguments, code, named) in [
        (&["run", "--listen", "nowhere"][..], 2, "--listen"),
        (&["run", "--probe-mode", "sometimes"], 2, "--probe-mode"),
        (&["run", "--process-match", "("], 2, "--process-match"),
        (&["run", "--process-match", ""], 2, "every process"),
        (&["frobnicate"], 2, "frobnicate"),
        (&["inspect"], 2, "PID|PATH"),
        (&["inspect", "/nowhere/redis-server"], 1, "/nowhere/redis-server"),
        (&["inspect", "999999999"], 1, "no process 999999999"),
        (&["inspect", &folder], 1, "regular file"),
        (&["inspect", &nonsense.to_string_lossy()], 1, "ELF"),
        (&["trace", "4194305000", "GET"], 2, "<PID>"),
        (&["trace", "1", "GET", "--slower", "5"], 2, "100us or 1ms"),
        (&["trace", "1", "GET", "--seconds", "0"], 2, "--seconds"),
        (&["trace", "1"], 2, "<FUNCTION>"),
        (&["trace", "2147483647", "GET"], 1, "no process 2147483647"),
        (&["keys", "2147483647"], 1, "no process 2147483647"),
        (&["keys", "1", "--by", "("], 2, "--by"),
        (&["profile", "2147483647"], 1, "no process 2147483647"),
    ] {
        let (_, errors) = exits(evictscope().args(arguments), code)?;
        ensure!(errors.contains(named), "{arguments:?}: {errors}");
    }
    // A process of the same user may be looked at, but it is not a server.
    let other = Owned::start(Command::new("sleep").arg("60"))?;
    let pid = other.pid().to_string();
    let (_, errors) = exits(evictscope().args(["trace", &pid, "GET"]), 1)?;
    let parts = [&format!("process {pid} runs"), "not a Redis or Valkey server"];
    ensure!(parts.iter().all(|parts| errors.contains(*parts)), "{errors}");
    Ok(())
}

/// The name and types of every field; `[]` is each element of a list.
type Fields = BTreeMap<String, Vec<String>>;

/// Returns the fields of the documentation's table: name and type are the first two cells.
fn documented() -> Fields {
    let text = include_str!("../src/cli/inspect/json.md");
    text.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            let types = rest.split(" | ").next()?.split(" or ");
            Some((name.to_owned(), types.map(str::to_owned).collect()))
        })
        .collect()
}

/// Adds the fields of `value`, which is called `name`, with their types.
fn collect(name: &str, value: &Value, fields: &mut Fields) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    if !name.is_empty() {
        let kinds = fields.entry(name.to_owned()).or_default();
        if !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    }
    match value {
        Value::Array(elements) => {
            for element in elements {
                collect(&format!("{name}[]"), element, fields);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                let dot = if name.is_empty() { "" } else { "." };
                collect(&format!("{name}{dot}{key}"), member, fields);
            }
        }
        _ => {}
    }
}

/// Fields that only Valkey 9 has, or a build that keeps the number of expired keys in a vector register.
const OF_OTHERS: [&str; 3] = ["functions[].inner.job", "functions[].fields_inner", "functions[].inner.expired"];

/// Checks that every field of `value` is documented with its type, and that every documented field that
/// it can have is there.
fn agree(value: &Value) -> anyhow::Result<()> {
    let (documented, mut found) = (documented(), Fields::new());
    collect("", value, &mut found);
    for (name, kinds) in found.iter().filter(|(name, _)| !name.ends_with("[]")) {
        let allowed = documented.get(name).with_context(|| format!("{name} is not documented"))?;
        for kind in kinds {
            ensure!(allowed.contains(kind), "{name} is {kind}, documented as {allowed:?}");
        }
    }
    for name in documented.keys().filter(|name| !OF_OTHERS.contains(&name.as_str())) {
        // Null has no fields, and an empty list has no elements.
        let parent = name.rsplit_once('.').map_or("", |(parent, _)| parent);
        let has_parent =
            parent.is_empty() || found.get(parent).is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"));
        ensure!(!has_parent || found.contains_key(name), "{name} is not there");
    }
    Ok(())
}

/// Returns what `inspect --json` prints if it exits with this code, and what it says beside that.
fn report(code: i32, inspect: &mut Command) -> anyhow::Result<(Value, String)> {
    let (printed, errors) = exits(inspect, code)?;
    Ok((serde_json::from_str(&printed)?, errors))
}

fn predicted(code: i32, target: &Path) -> anyhow::Result<Value> {
    let mut inspect = evictscope_without_privileges();
    Ok(report(code, inspect.args(["inspect", "--json", "--rate", "50000"]).arg(target))?.0)
}

#[test]
fn the_documented_fields_are_those_of_a_report() -> anyhow::Result<()> {
    let Some(server) = servers::find_or_skip(servers::DEBIAN)? else { return Ok(()) };
    let report = predicted(0, &server)?;
    agree(&report)?;
    // Without privileges nothing is measured.
    let source = &report["cost"]["source"];
    ensure!(source == "documented", "{source}");
    let quantities = report["functions"][0]["inner"]["quantities"].as_array().into_iter().flatten();
    let names: Vec<_> = quantities.map(|each| each["name"].as_str()).collect();
    let expected = ["mem_reported", "overhead", "mem_used", "mem_tofree", "maxmemory"];
    ensure!(names == expected.map(Some), "{names:?}");
    Ok(())
}

#[test]
fn a_report_names_items_that_were_not_found() -> anyhow::Result<()> {
    let report = predicted(1, Path::new("/bin/sh"))?;
    agree(&report)?;
    let (missing, functions) = (&report["not_found"], &report["functions"]);
    ensure!(missing[0]["item"] == "eviction_call", "{missing}");
    ensure!(functions.as_array().is_some_and(Vec::is_empty), "{functions}");
    Ok(())
}

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
            return Ok(None);
        }
    }
    let program = directory.join("program");
    let plan = inspect(&program)?;
    let (first, rest) = plan["build_id"].as_str().context("no build id")?.split_at(2);
    Ok(Some(Stripped {
        program,
        debug: std::fs::read(directory.join("debug"))?,
        place: PathBuf::from(format!(".build-id/{first}/{rest}.debug")),
    }))
}

/// Returns what can be read at the goal site.
fn quantities(plan: &Value) -> anyhow::Result<&Vec<Value>> {
    let quantities = plan["functions"][0]["inner"]["quantities"].as_array().context("no inner site")?;
    ensure!(quantities.len() == 5, "{quantities:?}");
    Ok(quantities)
}

#[test]
fn inspect_finds_the_debug_file_and_ignores_that_of_another_build() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let other = tempfile::tempdir()?;
    let store = directory.path().join("store");
    let (Some(program), Some(other)) = (stripped(directory.path(), "-O2")?, stripped(other.path(), "-O1")?) else {
        return Ok(());
    };
    let file = store.join(&program.place);
    std::fs::create_dir_all(file.parent().context("no parent")?)?;
    std::fs::write(&file, &program.debug)?;
    let mut inspect = evictscope();
    inspect.args(["inspect", "--json", "--debug-dir"]).arg(&store).arg(&program.program);
    let (plan, _) = report(0, &mut inspect)?;
    ensure!(plan["debug_file"].as_str() == file.to_str(), "{plan}");
    for quantity in quantities(&plan)? {
        ensure!(quantity["method"] == "both", "{quantity}");
    }

    std::fs::write(&file, &other.debug)?;
    let (plan, printed) = report(0, &mut inspect)?;
    ensure!(printed.contains("debug file ignored") && printed.contains("its build id is"), "{printed}");
    ensure!(plan["debug_file"].is_null(), "{plan}");
    for quantity in quantities(&plan)? {
        ensure!(quantity["method"] != "both", "{quantity}");
    }
    Ok(())
}
