//! The command line without root.

use anyhow::ensure;
use evictscope_testkit::agent::{evictscope, evictscope_without_privileges};

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
        let output = evictscope().args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(2),
            "{arguments:?}: {}",
            output.status
        );
        ensure!(said.contains(named), "{arguments:?}: {said}");
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
        let output = evictscope().arg("inspect").arg(target).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1),
            "{}: {}",
            target.display(),
            output.status
        );
        ensure!(said.contains(named), "{}: {said}", target.display());
    }
    // The plan for an executable that is no Redis refuses.
    let output = evictscope().arg("inspect").arg(own).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(1), "{}", output.status);
    ensure!(said.contains("performEvictions"), "{said}");
    Ok(())
}

#[test]
fn without_root_run_and_check_say_what_is_missing() -> anyhow::Result<()> {
    for arguments in [&["run", "--listen", "127.0.0.1:0"][..], &["check"]] {
        let output = evictscope_without_privileges().args(arguments).output()?;
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let said = said.concat();
        ensure!(
            output.status.code() == Some(1),
            "{arguments:?}: {} {said}",
            output.status
        );
        ensure!(
            said.contains("CAP_SYS_ADMIN") && said.contains("root"),
            "{arguments:?}: {said}"
        );
    }
    Ok(())
}

#[test]
fn a_wrong_configuration_exits_with_2() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config.toml");
    for (text, arguments, code, said) in [
        (
            "listen = \"127.0.0.1:1\"\n",
            &["--check-config"][..],
            0,
            "is right",
        ),
        (
            "\nlisen = \"127.0.0.1:1\"\n",
            &["--check-config"],
            2,
            "line 2, lisen: unknown field",
        ),
        // Also without --check-config, and before anything else is tried.
        (
            "\nlisen = \"127.0.0.1:1\"\n",
            &[],
            2,
            "line 2, lisen: unknown field",
        ),
        // The command line wins. The address is from a range for documentation.
        (
            "listen = \"127.0.0.1:1\"\n",
            &["--listen", "198.51.100.1:9739"],
            1,
            "198.51.100.1:9739 is not an address of this host",
        ),
        // The file wins over the default.
        (
            "listen = \"198.51.100.2:9739\"\n",
            &[],
            1,
            "198.51.100.2:9739 is not an address of this host",
        ),
    ] {
        std::fs::write(&file, text)?;
        let output = evictscope()
            .args(["run", "--config"])
            .arg(&file)
            .args(arguments)
            .output()?;
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        ensure!(
            output.status.code() == Some(code),
            "{text}: {} {all}",
            output.status
        );
        ensure!(all.contains(said), "{text}: {all}");
    }
    let missing = evictscope()
        .args(["run", "--check-config", "--config", "/nowhere/config.toml"])
        .output()?;
    ensure!(missing.status.code() == Some(2), "{}", missing.status);
    Ok(())
}
