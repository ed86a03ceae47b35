//! The command line without root.

use std::process::Command;

use anyhow::ensure;
use evictscope_testkit::agent::{evictscope, evictscope_without_privileges};
use evictscope_testkit::owned::Owned;

/// Checks the exit code of a command, and returns what it writes to stdout and stderr.
fn exits(command: &mut Command, code: i32) -> anyhow::Result<(String, String)> {
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    let status = output.status;
    let is_right = status.code() == Some(code);
    ensure!(is_right, "{command:?}: {status} {said}{errors}");
    Ok((said, errors))
}

#[test]
fn usage_errors_exit_with_2_and_name_the_argument() -> anyhow::Result<()> {
    for (arguments, named) in [
        (&["run", "--listen", "nowhere"][..], "--listen"),
        (&["run", "--probe-mode", "sometimes"], "--probe-mode"),
        (&["run", "--process-match", "("], "--process-match"),
        (&["run", "--process-match", ""], "every process"),
        (&["inspect"], "PID|PATH"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let (_, errors) = exits(evictscope().args(arguments), 2)?;
        ensure!(errors.contains(named), "{arguments:?}: {errors}");
    }
    Ok(())
}

#[test]
fn a_target_that_cannot_be_inspected_exits_with_1() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let nonsense = directory.path().join("nonsense");
    std::fs::write(&nonsense, "not an executable at all")?;
    let own = std::env::current_exe()?;
    for (target, named) in [
        ("/nowhere/redis-server".as_ref(), "/nowhere/redis-server"),
        ("999999999".as_ref(), "no process 999999999"),
        (directory.path().as_os_str(), "regular file"),
        (nonsense.as_os_str(), "ELF"),
    ] {
        let (_, errors) = exits(evictscope().arg("inspect").arg(target), 1)?;
        ensure!(errors.contains(named), "{}: {errors}", target.display());
    }
    // An executable that is not Redis is refused.
    let (said, _) = exits(evictscope().arg("inspect").arg(own), 1)?;
    ensure!(said.contains("performEvictions"), "{said}");
    Ok(())
}

#[test]
fn without_root_each_command_that_attaches_says_what_is_missing() -> anyhow::Result<()> {
    for arguments in [&["run", "--listen", "127.0.0.1:0"][..], &["check"], &["selftest"]] {
        let mut command = evictscope_without_privileges();
        let (said, errors) = exits(command.args(arguments), 1)?;
        let all = said + &errors;
        for part in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "root"] {
            ensure!(all.contains(part), "{arguments:?}: {all}");
        }
    }
    Ok(())
}

#[test]
fn a_wrong_configuration_exits_with_2() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config.toml");
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
    std::fs::write(directory.path().join("web.yml"), web)?;
    for (text, arguments, code, said) in [
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
        ensure!(all.contains(said), "{text}: {all}");
    }
    let missing = ["run", "--check-config", "--config", "/nowhere/config.toml"];
    exits(evictscope().args(missing), 2)?;
    Ok(())
}

#[test]
fn what_cannot_be_traced_or_profiled_is_said() -> anyhow::Result<()> {
    for (arguments, code, named) in [
        (&["trace", "4194305000", "GET"][..], 2, "<PID>"),
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
    let said = [&format!("process {pid} runs"), "not a Redis or Valkey server"];
    ensure!(said.iter().all(|said| errors.contains(*said)), "{errors}");
    Ok(())
}
