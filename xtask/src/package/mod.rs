//! `cargo xtask package`: makes the files that operators install, in `target/package`.
//!
//! debhelper makes the .deb of each processor, as `packaging/debian` says. rpmbuild makes the .rpm from its files, and
//! the tarball and the image, which is one for all processors, are made from them too. The chart for Kubernetes is
//! packed as it is, with the manifests that Helm makes of it in a file beside it. [`sequence`] tries the packages out.

mod chart;
mod commit;
mod format;
mod image;
mod libraries;
mod materials;
mod seccomp;
mod sequence;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::target::Target;
use evictscope_testkit::{debian, process, workspace};

use self::commit::{Commit, tar};
use self::materials::Crate;
use self::sequence::Packages;
use crate::setup;

pub use self::commit::git;

const VERSION: &str = env!("CARGO_PKG_VERSION");

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

#[derive(Clone, Copy)]
pub enum Source {
    /// The files that are checked out: the agent is built, and names their commit.
    Commit,
    Built,
    Packed,
}

pub fn packages(source: Source) -> Result<Packages> {
    match source {
        Source::Commit => {
            // Before what takes long.
            debian::require(&[&debian::PACKING])?;
            let commit = Commit::of_checkout()?;
            for target in Target::ALL {
                setup::build_for(target, &commit.variables())?;
            }
            pack(&commit)
        }
        Source::Built => pack(&Commit::unnamed()?),
        Source::Packed => {
            let directory = directory()?;
            process::answer_of(Command::new("sha256sum").current_dir(&directory).args(["--check", "--strict", SUMS]))
                .context("the packages are not those that were made; pack again without --packed")?;
            Ok(Packages::of(Target::X86_64, &directory))
        }
    }
}

pub fn missing() -> Option<String> {
    [&debian::PACKING, &debian::PACKAGE, &debian::CROSS].into_iter().find_map(debian::missing)
}

fn directory() -> Result<PathBuf> {
    Ok(workspace::target_directory()?.join(DIRECTORY))
}

/// Packs for all processors. Returns what this machine can try out.
fn pack(commit: &Commit) -> Result<Packages> {
    debian::require(&[&debian::PACKING])?;
    let directory = directory()?;
    if directory.exists() {
        fs::remove_dir_all(&directory).context("cannot remove the previous packages")?;
    }
    let work = directory.join("work");
    fs::create_dir_all(&work).context("cannot create target/package")?;
    // For hosts that have only the image.
    let filter = directory.join(SECCOMP);
    seccomp::write(&filter)?;
    let crates = materials::crates()?;
    let mut products = Vec::new();
    for target in Target::ALL {
        let packages = Packages::of(target, &directory);
        let files = make_deb(&packages.deb, &work, target, commit, &crates)?;
        make_rpm(&packages.rpm, &files, target, commit, &work)?;
        let tarball = directory.join(files.with_added_extension("tar.gz").file_name().unwrap_or_default());
        // Of the files, below one directory, named as here.
        let mut archive = tar(commit);
        archive.args(["--gzip", "--create", "--file"]).arg(&tarball).arg("--directory");
        process::succeed(archive.args([&work, files.strip_prefix(&work)?]))?;
        image::add(&files, target, commit, &work)?;
        products.extend([packages.deb, packages.rpm, tarball]);
    }
    let packages = Packages::of(Target::X86_64, &directory);
    image::save(&packages.image, commit, &work)?;
    products.push(packages.image.clone());
    products.extend(chart::make(&directory, commit)?);
    products.push(filter);
    let materials = directory.join(format!("evictscope-{VERSION}.cdx.json"));
    materials::write(&materials, commit, &crates)?;
    products.push(materials);
    let names = products.iter().filter_map(|product| product.file_name());
    let sums = process::answer_of(Command::new("sha256sum").current_dir(&directory).args(names))?;
    fs::write(directory.join(SUMS), &sums).with_context(|| format!("cannot write {SUMS}"))?;
    fs::remove_dir_all(&work).context("cannot remove what was generated")?;
    println!("{}:\n{}", directory.display(), sums.trim_end());
    Ok(packages)
}

/// Makes the .deb, and returns a directory with its files: debhelper packs into the directory above its own.
fn make_deb(deb: &Path, work: &Path, target: Target, commit: &Commit, crates: &[Crate]) -> Result<PathBuf> {
    let here = workspace::root();
    let generated = work.join(target.name());
    let debian = generated.join("debian");
    fs::create_dir(&generated).context("cannot create a folder to pack in")?;
    // What it generates is the same for all processors.
    process::succeed(Command::new(workspace::agent_binary()?).arg("generate").arg(&generated))?;
    seccomp::write(&generated.join(SECCOMP))?;
    process::answer_of(Command::new("cp").arg("--recursive").args([&here.join("packaging/debian"), &debian]))?;
    let copyright = debian.join("copyright");
    let own = fs::read_to_string(&copyright).context("cannot read the copyright")?;
    fs::write(copyright, own + &materials::notices(crates)?).context("cannot write the copyright")?;
    let agent = target.agent_binary()?;
    fs::copy(here.join("packaging/evictscope.service"), debian.join("evictscope.service"))
        .and_then(|_| fs::copy(&agent, generated.join("evictscope")))
        .and_then(|_| symlink(here, generated.join("source")))
        .context("cannot lay out what is packed")?;
    let time = commit.time.strftime("%a, %d %b %Y %H:%M:%S +0000");
    let author = "The evictscope authors <evictscope@localhost>";
    let change =
        format!("evictscope ({VERSION}-1) stable; urgency=low\n\n  * See CHANGELOG.md.\n\n -- {author}  {time}\n");
    fs::write(debian.join("changelog"), change).context("cannot write debian/changelog")?;
    // With the variables of a build for that processor, if it is not this machine's.
    let mut make = commit.reproducibly("dpkg-architecture");
    make.current_dir(&generated).env("DEPENDS", libraries::requirements(&agent)?);
    make.args(["--host-arch", target.debian(), "--command", "make --file debian/rules binary"]);
    process::answer_of(&mut make)?;
    let made = work.join(deb.file_name().unwrap_or_default());
    fs::rename(&made, deb).with_context(|| format!("debhelper has not made {}", made.display()))?;
    let files = work.join(format!("evictscope-{VERSION}-{}-linux", target.name()));
    process::succeed(Command::new("dpkg-deb").arg("--extract").args([deb, &files]))?;
    Ok(files)
}

fn make_rpm(rpm: &Path, files: &Path, target: Target, commit: &Commit, work: &Path) -> Result<()> {
    let mut build = commit.reproducibly("rpmbuild");
    build.args(["-bb", "--quiet", "--target", target.name()]);
    for (macro_name, value) in [
        ("agent_version", Path::new(VERSION)),
        ("packed_files", files),
        ("_topdir", &work.join("rpmbuild")),
        ("_rpmdir", rpm.parent().unwrap_or(work)),
        ("_rpmfilename", Path::new(rpm.file_name().unwrap_or_default())),
    ] {
        build.arg("--define").arg(format!("{macro_name} {}", value.display()));
    }
    process::answer_of(build.arg(workspace::root().join("packaging/rpm/evictscope.spec")))
        .context("rpmbuild failed")
        .map(drop)
}
