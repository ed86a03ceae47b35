//! `cargo xtask kubernetes`: checks the Helm chart in `packaging/helm`.
//!
//! A Go program (`packaging/check`) does it, with the code of Kubernetes, Helm and prometheus-operator. No cluster is
//! needed.
//!
//! Go, which builds the generator of the dashboards, Grafana's linter, and the program that checks the Kubernetes chart.
//!
//! The last two need a newer Go than Debian's package. Go 1.21 and later download it themselves, as a module from the
//! module proxy. This does the same for an older Go.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::{debian, process, workspace};
use serde::Deserialize;

/// prometheus-operator, for its CustomResourceDefinitions.
const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

/// Its types, a separate module of the same version, which `packaging/check/go.mod` names.
const OPERATOR_TYPES: &str =
    "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring";

/// The variable in which the program gets the directory of that module.
const OPERATOR_VARIABLE: &str = "PROMETHEUS_OPERATOR";

/// Checks everything.
pub fn run() -> Result<()> {
    debian::provide(&[&debian::GO])?;
    if let Some(reason) = missing() {
        bail!(reason);
    }
    println!("{}", check()?);
    Ok(())
}

/// Checks the chart, and that the check itself refuses what it must. Returns what the check says.
pub fn check() -> Result<String> {
    let go = Go::find()?;
    let program = program(&go)?;
    let version = go.version_of(OPERATOR_TYPES, &sources())?;
    let operator = go.module(&format!("{OPERATOR}@{version}"))?;
    let mut tests = go.test(&sources());
    process::succeed(tests.env(OPERATOR_VARIABLE, &operator))?;
    let mut check = Command::new(program);
    check
        .env(OPERATOR_VARIABLE, operator)
        .arg("check")
        .arg(workspace::root())
        .arg(env!("CARGO_PKG_VERSION"));
    Ok(process::answer_of(&mut check)?.trim_end().to_owned())
}

/// Returns what `helm template` makes of the chart.
pub fn manifests() -> Result<String> {
    let mut render = Command::new(program(&Go::find()?)?);
    process::answer_of(render.arg("render").arg(workspace::root()))
}

/// Returns why the chart cannot be checked on this machine.
pub fn missing() -> Option<String> {
    debian::missing(&debian::GO)
}

fn program(go: &Go) -> Result<PathBuf> {
    let directory = workspace::target_directory()?.join("kubernetes");
    fs::create_dir_all(&directory).context("cannot make a directory for the program")?;
    // Two tasks of `cargo xtask test --all` need it: the second must neither build it too nor overwrite it.
    let lock = File::create(directory.join("lock")).context("cannot make a lock")?;
    lock.lock().context("cannot wait for the lock")?;
    let program = directory.join("check");
    go.build(&sources(), ".", &program)
        .context("cannot build the program that checks the chart")?;
    Ok(program)
}

fn sources() -> PathBuf {
    workspace::root().join("packaging/check")
}

/// The first Go that downloads the version that a module needs.
const GETS_NEWER: (u32, u32) = (1, 21);

/// The version that `dashboards/linter/go.mod` and `packaging/check/go.mod` need, as a module.
const TOOLCHAIN: &str = "golang.org/toolchain@v0.0.1-go1.26.3.linux-amd64";

/// A Go that is new enough.
pub struct Go(PathBuf);

#[derive(Deserialize)]
struct Downloaded {
    #[serde(rename = "Dir")]
    directory: PathBuf,
}

impl Go {
    /// Finds the Go on `PATH`, or lets it download a newer one.
    pub fn find() -> Result<Self> {
        let version = process::answer_of(Command::new("go").args(["env", "GOVERSION"]))
            .context("there is no Go: `cargo xtask setup` installs it")?;
        if newer(&version) {
            return Ok(Self("go".into()));
        }
        let toolchain = Self("go".into()).module(TOOLCHAIN)?;
        // Files of a module are not executable.
        let mut make_executable = Command::new("chmod");
        make_executable.args(["--recursive", "+x"]);
        make_executable.args([toolchain.join("bin"), toolchain.join("pkg/tool")]);
        process::answer_of(&mut make_executable)?;
        Ok(Self(toolchain.join("bin/go")))
    }

    /// Downloads a module, given as `path@version`, and returns its directory.
    pub fn module(&self, module: &str) -> Result<PathBuf> {
        let mut command = Command::new(&self.0);
        let answer = process::answer_of(command.args(["mod", "download", "-json", module]))?;
        let downloaded: Downloaded =
            serde_json::from_str(&answer).context("cannot understand `go mod download`")?;
        Ok(downloaded.directory)
    }

    /// Returns the version in which the module in `module` depends on another.
    pub fn version_of(&self, dependency: &str, module: &Path) -> Result<String> {
        let mut command = self.in_module(module);
        command.args(["list", "-m", "-f", "{{.Version}}", dependency]);
        Ok(process::answer_of(&mut command)?.trim_end().to_owned())
    }

    /// Builds `package` of the module in `module`.
    pub fn build(&self, module: &Path, package: &str, to: &Path) -> Result<()> {
        let mut command = self.in_module(module);
        process::succeed(command.args(["build", "-o"]).arg(to).arg(package))
    }

    /// Returns the command that runs the tests of the module in `module`. Go reruns only those whose files have changed.
    pub fn test(&self, module: &Path) -> Command {
        let mut command = self.in_module(module);
        command.args(["test", "./..."]);
        command
    }

    fn in_module(&self, module: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command
            .current_dir(module)
            .env("GOTOOLCHAIN", "auto")
            // Whatever the environment says, versions and digests are those of go.mod and go.sum.
            .env("GOFLAGS", "-mod=readonly -buildvcs=false")
            .env("GOWORK", "off");
        command
    }
}

/// Returns whether a Go downloads newer ones, from its answer to `go env GOVERSION`, which is empty before 1.16.
fn newer(version: &str) -> bool {
    let numbers = version.trim().strip_prefix("go").unwrap_or_default();
    let mut parts = numbers.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= GETS_NEWER,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::newer;

    #[test]
    fn a_go_that_gets_newer_ones_is_recognised() {
        assert!(newer("go1.26.8\n"));
        assert!(newer("go1.21.0"));
        assert!(!newer("go1.19.8"));
        assert!(!newer(""));
        assert!(!newer("devel +1234"));
    }
}
