//! The file beneath an executable on an overlay (Documentation/filesystems/overlayfs.rst).
//!
//! Whatever changes such a file, if only its mode or its times, copies it to the upper layer first. A process that
//! executes it already goes on with the lower file, but `/proc/PID/exe` leads to the copy, under the same device and
//! inode numbers, and a probe there is never hit.

use std::path::{Path, PathBuf};

use super::executable::Executable;
use super::mount::{Found, Mount, OVERLAY, unescape};

/// The options that name lower layers: several in one, or one each.
const LAYERS: [&str; 2] = ["lowerdir=", "lowerdir+="];
/// What `/proc/PID/exe` appends to the path of a file that was deleted.
const DELETED: &str = " (deleted)";

/// Returns the file beneath what a process executes, in the highest lower layer that has one; `None` if that is not on
/// an overlay, or the agent cannot reach it. `path` is where the process sees its executable.
pub fn lower_file(pid: u32, path: &Path) -> Option<Executable> {
    let Ok(Found::Mount(mount)) = Mount::of_exe(pid) else {
        return None;
    };
    if mount.kind != OVERLAY {
        return None;
    }
    let path = path.to_string_lossy();
    let path = Path::new(path.strip_suffix(DELETED).unwrap_or(&path));
    let inside = mount.inside(path)?;
    let mut files = lower_layers(&mount.options).map(|layer| layer.join(&inside));
    files.find_map(|file| open(&file))
}

/// Opens a file of a layer as the agent sees it, or else as the first process of the host does.
fn open(file: &Path) -> Option<Executable> {
    let mut views = ["self", "1"].into_iter();
    views.find_map(|process| {
        let mount = Mount::at(process, file).ok()??;
        let seen = Path::new("/proc").join(process).join("root");
        let seen = seen.join(file.strip_prefix("/").ok()?);
        let opened = (!mount.may_hang()).then(|| Executable::open(&seen));
        Some(opened?.ok()?.readable())
    })
}

/// Returns the lower layers that the options of an overlay name, the highest first.
fn lower_layers(options: &str) -> impl Iterator<Item = PathBuf> {
    let lists = (options.split(',')).filter_map(|option| {
        let mut names = LAYERS.iter();
        names.find_map(|name| option.strip_prefix(name))
    });
    lists.flat_map(|list| {
        // A colon in a path has a backslash before it, which the kernel shows as `\134`.
        let parts = unescape(list).replace("\\:", "\0");
        let paths: Vec<PathBuf> = (parts.split(':'))
            .map(|path| path.replace('\0', ":").into())
            .filter(|path: &PathBuf| path.is_absolute())
            .collect();
        paths
    })
}

#[cfg(test)]
mod tests {
    use super::lower_layers;

    #[test]
    fn layers_are_found_in_both_spellings() {
        let layers = |options| -> Vec<String> {
            let layers = lower_layers(options).map(|layer| layer.display().to_string());
            layers.collect()
        };
        let old = "rw,lowerdir=/a\\040b:/c\\134:d:/e,upperdir=/u,workdir=/w";
        assert_eq!(layers(old), ["/a b", "/c:d", "/e"]);
        let new = "rw,lowerdir+=/a,lowerdir+=/b,upperdir=/u,workdir=/w,uuid=on";
        assert_eq!(layers(new), ["/a", "/b"]);
        assert!(layers("rw,lowerdir=l/ABC:l/DEF").is_empty(), "relative");
    }
}
