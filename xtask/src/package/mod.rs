//! `cargo xtask package`: makes the files that operators install, in `target/package`.
//!
//! cargo-deb makes the .deb, which `agent/Cargo.toml` describes. The tarball has the same files.
//! cargo-cyclonedx makes the bill of materials. [`sequence`] tries the .deb out.

mod root;
mod seccomp;
mod sequence;
mod tools;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::{debian, process, workspace};

pub use self::root::provide as provide_root;
use crate::build;

/// The variable with the time of a reproducible build, in seconds since 1970.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The checksums of the products, as `sha256sum` writes them.
const SUMS: &str = "SHA256SUMS";

/// What to do with the packages.
#[derive(clap::Args)]
pub struct Arguments {
    /// Then install the .deb in a clean root, run it there as its unit says, beside two bursts of the
    /// lab and a Prometheus with its rules and dashboards, and purge it (needs root; some 80 s)
    #[arg(long)]
    try_out: bool,
    /// Pack nothing: try out what was packed before
    #[arg(long, requires = "try_out")]
    packed: bool,
}

/// Builds, packs and tries out the agent, as far as the arguments say so.
pub fn run(arguments: &Arguments) -> Result<()> {
    let deb = deb(arguments.packed)?;
    if arguments.try_out {
        debian::provide(&debian::PACKAGE)?;
        if let Some(reason) = missing() {
            bail!(reason);
        }
        sequence::run(&deb)?;
    }
    Ok(())
}

/// Builds the agent, packs it, and returns the .deb; or returns what was `packed` before.
pub fn deb(packed: bool) -> Result<PathBuf> {
    let directory = workspace::target_directory()?.join("package");
    if !packed {
        build::run()?;
        pack(&directory)?;
    }
    process::answer_of(
        Command::new("sha256sum")
            .current_dir(&directory)
            .args(["--check", "--strict", SUMS]),
    )
    .context("the packages are not those that were made; pack again without --packed")?;
    deb_in(&directory)
}

/// Returns why the package cannot be tried out on this machine.
pub fn missing() -> Option<String> {
    debian::missing(&debian::PACKAGE)
}

fn pack(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).context("cannot remove the previous packages")?;
    }
    let generated = directory.join("generated");
    fs::create_dir_all(&generated).context("cannot create target/package")?;
    process::succeed(
        Command::new(workspace::agent_binary()?)
            .arg("generate")
            .arg(&generated),
    )?;
    seccomp::write(&generated.join("seccomp.json"))?;

    let deb = make_deb(directory)?;
    let tarball = tarball(directory, &deb)?;
    let sbom = sbom(directory)?;
    let mut products = vec![deb.clone(), tarball.clone()];
    for product in [&deb, &tarball] {
        let bill = name(product)? + ".cdx.json";
        fs::copy(&sbom, directory.join(&bill)).context("cannot copy the bill of materials")?;
        products.push(directory.join(bill));
    }
    let names = products.iter().map(|product| name(product));
    let sums = process::answer_of(
        Command::new("sha256sum")
            .current_dir(directory)
            .args(names.collect::<Result<Vec<_>>>()?),
    )?;
    fs::write(directory.join(SUMS), &sums).with_context(|| format!("cannot write {SUMS}"))?;
    fs::remove_dir_all(&generated).context("cannot remove what was generated")?;
    println!("{}:\n{}", directory.display(), sums.trim_end());
    Ok(())
}

/// Makes the .deb.
fn make_deb(directory: &Path) -> Result<PathBuf> {
    let made = process::answer_of(
        reproducibly(tools::path(tools::DEB)?)
            // Cargo passes a subcommand its own name.
            .args(["deb", "--package", "evictscope", "--no-build", "--quiet"])
            .arg("--output")
            .arg(directory),
    );
    made.context("cargo-deb failed")?;
    deb_in(directory)
}

fn deb_in(directory: &Path) -> Result<PathBuf> {
    let mut files = workspace::files_ending(directory, "deb")?;
    Ok(files.remove(0))
}

/// Makes a tarball of the same files, below one directory.
fn tarball(directory: &Path, deb: &Path) -> Result<PathBuf> {
    let stem = format!("evictscope-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let unpacked = directory.join(&stem);
    process::succeed(
        Command::new("dpkg-deb")
            .arg("--extract")
            .args([deb, &unpacked]),
    )?;
    let tarball = directory.join(format!("{stem}.tar.gz"));
    process::succeed(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["--mtime=@0", "--gzip", "--create", "--file"])
            .arg(&tarball)
            .arg("--directory")
            .arg(directory)
            .arg(&stem),
    )?;
    fs::remove_dir_all(unpacked).context("cannot remove the unpacked package")?;
    Ok(tarball)
}

/// Makes a list of every crate in the agent, in CycloneDX JSON.
fn sbom(directory: &Path) -> Result<PathBuf> {
    const NAME: &str = "evictscope-sbom";
    // It writes one beside the manifest of each member of the workspace. In a copy, because cargo builds
    // the agent anew whenever something has changed in agent-ebpf.
    let copy = directory.join("generated/sources");
    fs::create_dir(&copy).context("cannot make a directory for the bill of materials")?;
    process::succeed(
        Command::new("cp")
            .current_dir(workspace::root())
            .args(["--recursive", "Cargo.toml", "Cargo.lock"])
            .args(["agent", "agent-ebpf", "xtask"])
            .arg(&copy),
    )?;
    let manifest = copy.join("agent/Cargo.toml");
    process::succeed(
        reproducibly(tools::path(tools::SBOM)?)
            .args(["cyclonedx", "--format", "json"])
            .args(["--target", "x86_64-unknown-linux-gnu"])
            .args(["--override-filename", NAME, "--manifest-path"])
            .arg(&manifest),
    )?;
    let written = copy.join("agent").join(format!("{NAME}.json"));
    ensure!(
        written.exists(),
        "cargo-cyclonedx has left no bill of materials"
    );
    Ok(written)
}

/// Returns a command of a tool that makes the same bytes of the same commit: the times in them are the
/// commit's, or the one that the caller has set.
fn reproducibly(tool: PathBuf) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(workspace::root());
    let mut asked = Command::new("git");
    asked
        .current_dir(workspace::root())
        .args(["log", "-1", "--format=%ct"]);
    if std::env::var_os(EPOCH).is_none()
        // Without a repository, the time of packing is used.
        && let Ok(time) = process::answer_of(&mut asked)
    {
        command.env(EPOCH, time.trim());
    }
    command
}

fn name(path: &Path) -> Result<String> {
    let name = path.file_name().context("a path has no name")?;
    Ok(name.to_string_lossy().into_owned())
}
