//! `cargo xtask package`: makes the files that operators install, in `target/package`.
//!
//! cargo-deb makes the .deb, which `agent/Cargo.toml` describes. rpmbuild makes the .rpm from its files, and the
//! tarball and the image are made from them too. cargo-cyclonedx makes the bills of materials. The chart for Kubernetes
//! is packed as it is, with the manifests that Helm makes of it in a file beside it. [`sequence`] tries the packages
//! out.

mod commit;
mod format;
mod image;
mod sbom;
mod sequence;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{debian, process, workspace};

use self::sbom::Bill;
use crate::{build, kubernetes};

pub use self::commit::{Commit, git};

/// Where the products are, in the target directory.
pub const DIRECTORY: &str = "package";

/// The checksums of the products, as `sha256sum` writes them.
pub const SUMS: &str = "SHA256SUMS";

/// The name of the image's filter of system calls, in the package and among the products.
const SECCOMP: &str = "seccomp.json";

/// What to do with the packages.
#[derive(clap::Args)]
pub struct Arguments {
    /// Then install the .deb and the .rpm in a clean root, run them there as their unit says, the .deb beside a
    /// stalled server and a Prometheus with its rules and dashboards, and remove them (needs root)
    #[arg(long)]
    try_out: bool,
    /// Pack nothing: try out what was packed before
    #[arg(long, requires = "try_out")]
    packed: bool,
    /// Build nothing: pack what `cargo xtask build` made. Such an agent names no commit
    #[arg(long, conflicts_with = "packed")]
    as_built: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.try_out {
        debian::require(&[&debian::PACKING, &debian::PACKAGE])?;
    }
    let packages = packages(match arguments {
        Arguments { packed: true, .. } => Source::Packed,
        Arguments { as_built: true, .. } => Source::Built,
        _ => Source::Commit,
    })?;
    if arguments.try_out {
        sequence::run(&packages)?;
    }
    Ok(())
}

/// The packages that are tried out.
pub struct Packages {
    /// For Debian and its derivatives.
    pub deb: PathBuf,
    /// For Fedora, RHEL, SUSE and their derivatives.
    pub rpm: PathBuf,
    pub image: PathBuf,
}

#[derive(Clone, Copy)]
pub enum Source {
    /// The files that are checked out: the agent is built, and names their commit.
    Commit,
    /// The release build that is there.
    Built,
    /// They were made before.
    Packed,
}

pub fn packages(source: Source) -> Result<Packages> {
    match source {
        Source::Commit => {
            let commit = Commit::of_checkout()?;
            build::naming(&commit.variables())?;
            pack(&commit)
        }
        Source::Built => pack(&Commit::unnamed()?),
        Source::Packed => packed(),
    }
}

fn packed() -> Result<Packages> {
    let directory = directory()?;
    process::answer_of(Command::new("sha256sum").current_dir(&directory).args(["--check", "--strict", SUMS]))
        .context("the packages are not those that were made; pack again without --packed")?;
    Ok(Packages { deb: only(&directory, "deb")?, rpm: only(&directory, "rpm")?, image: only(&directory, "tar")? })
}

pub fn missing() -> Option<String> {
    debian::missing(&debian::PACKING).or_else(|| debian::missing(&debian::PACKAGE))
}

fn directory() -> Result<PathBuf> {
    Ok(workspace::target_directory()?.join(DIRECTORY))
}

fn pack(commit: &Commit) -> Result<Packages> {
    debian::require(&[&debian::PACKING])?;
    let directory = directory()?;
    if directory.exists() {
        fs::remove_dir_all(&directory).context("cannot remove the previous packages")?;
    }
    let generated = directory.join("generated");
    fs::create_dir_all(&generated).context("cannot create target/package")?;
    process::succeed(Command::new(workspace::agent_binary()?).arg("generate").arg(&generated))?;
    let filter = generated.join(SECCOMP);
    sequence::write(&filter)?;

    let deb = make_deb(&directory, commit)?;
    let stem = format!("evictscope-{}-x86_64", env!("CARGO_PKG_VERSION"));
    let files = generated.join(format!("{stem}-linux"));
    process::succeed(Command::new("dpkg-deb").arg("--extract").args([&deb, &files]))?;
    let rpm = make_rpm(&directory, &files, commit, &generated)?;
    let tarball = directory.join(format!("{stem}-linux.tar.gz"));
    // Of the files, below one directory, named as here.
    let mut archive = tar(commit);
    archive.args(["--gzip", "--create", "--file"]).arg(&tarball).arg("--directory");
    process::succeed(archive.args([&generated, Path::new(&name(&files)?)]))?;
    let libraries = sbom::of(&files.join(image::PROGRAM))?;
    let image = directory.join(format!("{stem}.oci.tar"));
    image::make(&image, &files, &libraries, commit, &generated)?;

    let mut bill = Bill::of_crates(&generated, commit)?;
    let mut products = Vec::new();
    for product in [&deb, &rpm, &tarball] {
        products.extend([product.clone(), bill.write_beside(product)?]);
    }
    bill.add(&libraries)?;
    products.extend([image.clone(), bill.write_beside(&image)?]);
    products.extend(kubernetes::make(&directory, commit)?);
    // For hosts that have only the image.
    products.push(directory.join(SECCOMP));
    fs::copy(&filter, directory.join(SECCOMP)).with_context(|| format!("cannot copy {SECCOMP}"))?;
    let sums = sums(&directory, &products)?;
    fs::remove_dir_all(&generated).context("cannot remove what was generated")?;
    println!("{}:\n{}", directory.display(), sums.trim_end());
    Ok(Packages { deb, rpm, image })
}

fn sums(directory: &Path, products: &[PathBuf]) -> Result<String> {
    let names = products.iter().map(|product| name(product)).collect::<Result<Vec<_>>>()?;
    let sums = process::answer_of(Command::new("sha256sum").current_dir(directory).args(names))?;
    fs::write(directory.join(SUMS), &sums).with_context(|| format!("cannot write {SUMS}"))?;
    Ok(sums)
}

fn make_deb(directory: &Path, commit: &Commit) -> Result<PathBuf> {
    let mut make = commit.reproducibly(tool("cargo-deb", "3.8.0")?);
    // Cargo passes a subcommand its own name.
    make.args(["deb", "--package", "evictscope", "--no-build", "--quiet", "--output"]).arg(directory);
    process::answer_of(&mut make).context("cargo-deb failed")?;
    only(directory, "deb")
}

fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let mut files = workspace::files_ending(directory, ending)?;
    ensure!(files.len() == 1, "one *.{ending} was expected, not {files:?}");
    Ok(files.remove(0))
}

/// Returns a `tar` that makes the same bytes from the same files.
pub fn tar(commit: &Commit) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", commit.time.as_second()));
    tar
}

fn name(path: &Path) -> Result<String> {
    let name = path.file_name().context("a path has no name")?;
    Ok(name.to_string_lossy().into_owned())
}

/// Returns the path of a cargo subcommand of crates.io. Installs it below `target/tools` first if this version is not
/// there.
fn tool(package: &str, version: &str) -> Result<PathBuf> {
    let root = workspace::target_directory()?.join("tools");
    let path = root.join("bin").join(package);
    let present = Command::new(&path).args([&package["cargo-".len()..], "--version"]).output();
    if present.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version)) {
        return Ok(path);
    }
    println!("  installing {package} {version} into {} (up to a minute)", root.display());
    let mut install = workspace::cargo();
    install
        // A debug build takes half the time, and less without debug information. It is as fast at what it does here.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .args(["install", "--debug", "--locked", "--force", "--version", version, package, "--root"])
        .arg(&root)
        // What they have in common is built once.
        .env("CARGO_TARGET_DIR", root.join("build"));
    process::succeed(&mut install)?;
    Ok(path)
}

fn make_rpm(directory: &Path, files: &Path, commit: &Commit, work: &Path) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("evictscope-{version}-1.x86_64.rpm");
    let rpm = directory.join(&name);
    let mut build = commit.reproducibly("rpmbuild");
    build.args(["-bb", "--quiet", "--target", "x86_64"]);
    for (macro_name, value) in [
        ("agent_version", Path::new(version)),
        ("packed_files", files),
        ("_topdir", &work.join("rpmbuild")),
        ("_rpmdir", directory),
        ("_rpmfilename", Path::new(&name)),
    ] {
        build.arg("--define").arg(format!("{macro_name} {}", value.display()));
    }
    process::answer_of(build.arg(workspace::root().join("packaging/rpm/evictscope.spec")))
        .context("rpmbuild failed")?;
    Ok(rpm)
}
