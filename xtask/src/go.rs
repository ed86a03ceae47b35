//! Go, which builds the generator of the dashboards, Grafana's linter, and the program that checks the Kubernetes
//! chart.
//!
//! The last two need a newer Go than Debian's package. Go 1.21 and later download it themselves, as a module from the
//! module proxy. This does the same for an older Go.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::process;
use serde_json::Value;

/// The first Go that downloads the version that a module needs.
const GETS_NEWER: (u32, u32) = (1, 21);

/// The version that `dashboards/linter/go.mod` and `packaging/check/go.mod` need, as a module.
const TOOLCHAIN: &str = "golang.org/toolchain@v0.0.1-go1.26.3.linux-amd64";

pub struct Go(PathBuf);

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
        let programs = [toolchain.join("bin"), toolchain.join("pkg/tool")];
        process::answer_of(Command::new("chmod").args(["--recursive", "+x"]).args(programs))?;
        Ok(Self(toolchain.join("bin/go")))
    }

    /// Downloads a module, given as `path@version`, and returns its directory.
    pub fn module(&self, module: &str) -> Result<PathBuf> {
        let mut command = Command::new(&self.0);
        let answer = process::answer_of(command.args(["mod", "download", "-json", module]))?;
        let downloaded: Value = serde_json::from_str(&answer).context("cannot understand `go mod download`")?;
        Ok(downloaded["Dir"].as_str().context("`go mod download` names no directory")?.into())
    }

    pub fn version_of(&self, dependency: &str, module: &Path) -> Result<String> {
        let version =
            process::answer_of(self.in_module(module).args(["list", "-m", "-f", "{{.Version}}", dependency]))?;
        Ok(version.trim_end().to_owned())
    }

    pub fn build(&self, module: &Path, package: &str, to: &Path) -> Result<()> {
        process::succeed(self.in_module(module).args(["build", "-o"]).arg(to).arg(package))
    }

    /// Returns the command that runs the tests of the module in `module`. Go reruns only those whose files have
    /// changed.
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
    let mut parts = version.trim().trim_start_matches("go").split('.').map(str::parse::<u32>);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= GETS_NEWER)
}
