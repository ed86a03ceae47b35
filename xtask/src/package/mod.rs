//! `cargo xtask package`: makes the files that operators install, in `target/package`.
//!
//! debhelper makes the .deb, as `packaging/debian` says. rpmbuild makes the .rpm from its files, and the tarball and
//! the image are made from them too. The chart for Kubernetes is packed as it is, with the manifests that Helm makes of
//! it in a file beside it. [`sequence`] tries the packages out.

mod chart;
mod commit;
mod format;
mod image;
mod materials;
mod seccomp;
mod sequence;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::target::Target;
use evictscope_testkit::{debian, process, workspace};

use self::commit::{Commit, tar};
use self::materials::Crate;
use self::sequence::Packages;
use crate::setup;

pub use self::commit::git;

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
            setup::build_for(Target::X86_64, &commit.variables())?;
            pack(&commit)
        }
        Source::Built => pack(&Commit::unnamed()?),
        Source::Packed => {
            let directory = directory()?;
            process::answer_of(Command::new("sha256sum").current_dir(&directory).args(["--check", "--strict", SUMS]))
                .context("the packages are not those that were made; pack again without --packed")?;
            let [deb, rpm, image] = ["deb", "rpm", "tar"].map(|ending| only(&directory, ending));
            Ok(Packages { deb: deb?, rpm: rpm?, image: image? })
        }
    }
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
    seccomp::write(&filter)?;

    let crates = materials::crates()?;
    let deb = make_deb(&directory, &generated, commit, &crates)?;
    let stem = format!("evictscope-{}-x86_64", env!("CARGO_PKG_VERSION"));
    let files = generated.join(format!("{stem}-linux"));
    process::succeed(Command::new("dpkg-deb").arg("--extract").args([&deb, &files]))?;
    let rpm = make_rpm(&directory, &files, commit, &generated)?;
    let tarball = directory.join(format!("{stem}-linux.tar.gz"));
    // Of the files, below one directory, named as here.
    let mut archive = tar(commit);
    archive.args(["--gzip", "--create", "--file"]).arg(&tarball).arg("--directory");
    process::succeed(archive.args([&generated, files.strip_prefix(&generated)?]))?;
    let image = directory.join(format!("{stem}.image.tar"));
    image::make(&image, &files, commit, &generated)?;

    let mut products = vec![deb.clone(), rpm.clone(), tarball, image.clone()];
    products.extend(chart::make(&directory, commit)?);
    // For hosts that have only the image.
    products.push(directory.join(SECCOMP));
    fs::copy(&filter, directory.join(SECCOMP)).with_context(|| format!("cannot copy {SECCOMP}"))?;
    let materials = directory.join(format!("evictscope-{}.cdx.json", env!("CARGO_PKG_VERSION")));
    materials::write(&materials, commit, &crates)?;
    products.push(materials);
    let names = products.iter().filter_map(|product| product.file_name());
    let sums = process::answer_of(Command::new("sha256sum").current_dir(&directory).args(names))?;
    fs::write(directory.join(SUMS), &sums).with_context(|| format!("cannot write {SUMS}"))?;
    fs::remove_dir_all(&generated).context("cannot remove what was generated")?;
    println!("{}:\n{}", directory.display(), sums.trim_end());
    Ok(Packages { deb, rpm, image })
}

/// Makes the .deb in `directory`, from what is in `generated` below it: debhelper packs into the directory above its
/// own.
fn make_deb(directory: &Path, generated: &Path, commit: &Commit, crates: &[Crate]) -> Result<PathBuf> {
    let here = workspace::root();
    let debian = generated.join("debian");
    process::answer_of(Command::new("cp").arg("--recursive").args([&here.join("packaging/debian"), &debian]))?;
    let copyright = debian.join("copyright");
    let own = fs::read_to_string(&copyright).context("cannot read the copyright")?;
    fs::write(copyright, own + &materials::notices(crates)?).context("cannot write the copyright")?;
    let agent = workspace::agent_binary()?;
    fs::copy(here.join("packaging/evictscope.service"), debian.join("evictscope.service"))
        .and_then(|_| fs::copy(agent, generated.join("evictscope")))
        .and_then(|_| symlink(here, generated.join("source")))
        .context("cannot lay out what is packed")?;
    let (version, time) = (env!("CARGO_PKG_VERSION"), commit.time.strftime("%a, %d %b %Y %H:%M:%S +0000"));
    let author = "The evictscope authors <evictscope@localhost>";
    let change =
        format!("evictscope ({version}-1) stable; urgency=low\n\n  * See CHANGELOG.md.\n\n -- {author}  {time}\n");
    fs::write(debian.join("changelog"), change).context("cannot write debian/changelog")?;
    let mut make = commit.reproducibly("make");
    process::answer_of(make.current_dir(generated).args(["--file", "debian/rules", "binary"]))?;
    only(directory, "deb")
}

fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let mut files = workspace::files_ending(directory, ending)?;
    ensure!(files.len() == 1, "one *.{ending} was expected, not {files:?}");
    Ok(files.remove(0))
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
