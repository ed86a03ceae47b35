//! `cargo xtask package`: what operators install, in `target/package`.
//!
//! The .deb is described in `agent/Cargo.toml` and made by cargo-deb; the tarball has the same files;
//! the bill of materials is cargo-cyclonedx'. Both tools are installed below `target/tools`, in the
//! versions named here.

mod install;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{build, process, workspace};

/// A tool of the registry: its package and its version.
const DEB: (&str, &str) = ("cargo-deb", "3.8.0");
/// The bill of materials.
const SBOM: (&str, &str) = ("cargo-cyclonedx", "0.5.9");

/// What to do with the packages.
#[derive(clap::Args)]
pub struct Arguments {
    /// Install the .deb in a clean root, check it, and purge it again (needs root and mmdebstrap)
    #[arg(long)]
    try_out: bool,
}

/// Builds the agent and packs it.
pub fn run(arguments: &Arguments) -> Result<()> {
    build::run()?;
    let directory = workspace::target_directory()?.join("package");
    if directory.exists() {
        fs::remove_dir_all(&directory).context("cannot remove the previous packages")?;
    }
    let generated = directory.join("generated");
    fs::create_dir_all(&generated).context("cannot create target/package")?;
    succeed(
        Command::new(workspace::agent_binary()?)
            .arg("generate")
            .arg(&generated),
    )?;

    let deb = deb(&directory)?;
    let tarball = tarball(&directory, &deb)?;
    let sbom = sbom(&directory)?;
    let mut products = vec![deb.clone(), tarball.clone()];
    for product in [&deb, &tarball] {
        let bill = name(product)? + ".cdx.json";
        fs::copy(&sbom, directory.join(&bill)).context("cannot copy the bill of materials")?;
        products.push(directory.join(bill));
    }
    let names = products.iter().map(|product| name(product));
    let sums = process::answer_of(
        Command::new("sha256sum")
            .current_dir(&directory)
            .args(names.collect::<Result<Vec<_>>>()?),
    )?;
    fs::write(directory.join("SHA256SUMS"), &sums).context("cannot write SHA256SUMS")?;
    fs::remove_dir_all(&generated).context("cannot remove what was generated")?;
    println!("{}:\n{}", directory.display(), sums.trim_end());
    if arguments.try_out {
        install::try_out(&deb)?;
    }
    Ok(())
}

/// The .deb.
fn deb(directory: &Path) -> Result<PathBuf> {
    let made = process::answer_of(
        Command::new(tool(DEB)?)
            .current_dir(workspace::root())
            // Named by cargo, which calls its subcommands so.
            .args(["deb", "--package", "evictscope", "--no-build", "--quiet"])
            .arg("--output")
            .arg(directory),
    );
    made.context("cargo-deb failed")?;
    let mut files = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("cargo-deb has left no .deb")
}

/// The same files, below one directory.
fn tarball(directory: &Path, deb: &Path) -> Result<PathBuf> {
    let stem = format!("evictscope-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let unpacked = directory.join(&stem);
    succeed(
        Command::new("dpkg-deb")
            .arg("--extract")
            .args([deb, &unpacked]),
    )?;
    let tarball = directory.join(format!("{stem}.tar.gz"));
    succeed(
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

/// Every crate in the agent, in CycloneDX JSON.
fn sbom(directory: &Path) -> Result<PathBuf> {
    const NAME: &str = "evictscope-sbom";
    let manifest = workspace::root().join("agent/Cargo.toml");
    succeed(
        Command::new(tool(SBOM)?)
            .current_dir(workspace::root())
            .args(["cyclonedx", "--format", "json"])
            .args([
                "--target",
                "x86_64-unknown-linux-gnu",
                "--override-filename",
                NAME,
            ])
            .arg("--manifest-path")
            .arg(&manifest),
    )?;
    // It writes one beside the manifest of each member of the workspace.
    let file = format!("{NAME}.json");
    for member in ["agent-ebpf", "xtask"] {
        // Not there with every version of the tool.
        let _ = fs::remove_file(workspace::root().join(member).join(&file));
    }
    let kept = directory.join("generated").join(&file);
    let written = workspace::root().join("agent").join(&file);
    fs::copy(&written, &kept).context("cargo-cyclonedx has left no bill of materials")?;
    fs::remove_file(&written).context("cannot remove the bill of materials beside the sources")?;
    Ok(kept)
}

/// The path of a tool in this version, which is installed first where it is not there.
fn tool((package, version): (&str, &str)) -> Result<PathBuf> {
    let root = workspace::target_directory()?.join("tools");
    let path = root.join("bin").join(package);
    let present = Command::new(&path)
        .args([&package["cargo-".len()..], "--version"])
        .output();
    let fits =
        present.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version));
    if !fits {
        println!(
            "  installing {package} {version} into {} (some minutes)",
            root.display()
        );
        let mut install = workspace::cargo();
        install
            .args([
                "install",
                "--locked",
                "--force",
                "--version",
                version,
                package,
                "--root",
            ])
            .arg(&root);
        succeed(&mut install)?;
    }
    Ok(path)
}

fn succeed(command: &mut Command) -> Result<()> {
    let label = process::display(command);
    let finished = process::run_with_progress(&label, command)?;
    ensure!(
        finished.status.success(),
        "{}\n`{label}` failed ({})",
        finished.output.trim_end(),
        finished.status
    );
    Ok(())
}

fn name(path: &Path) -> Result<String> {
    let name = path.file_name().context("a path without a name")?;
    Ok(name.to_string_lossy().into_owned())
}
