//! Finds the separate file with an executable's debug information.
//!
//! The search follows debuggers: by build id below a directory of debug files, and by the name in
//! `.gnu_debuglink` beside the executable, in `.debug/` there, and below that directory. A process in
//! a container has files of its own, so the search starts from its root directory and stays below it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use evictscope_plan::DebugFileNames;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::executable::{Contents, ExecutableError};
use super::regular::reopened;

/// Where distributions put debug files.
const DEFAULT_DIRECTORY: &str = "/usr/lib/debug";

/// The properties by which a debug file is found.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    /// The path of the executable below `root`.
    exe: &'a Path,
    /// The root directory: `/`, or `/proc/PID/root`.
    root: &'a Path,
    /// The executable's build id, lower-case hexadecimal.
    build_id: Option<&'a str>,
    /// The file name in its `.gnu_debuglink`.
    link: Option<&'a str>,
}

/// Where a debug file may be.
pub struct DebugPlace {
    /// The root directory to look below.
    pub root: PathBuf,
    /// Its absolute path there.
    pub path: PathBuf,
}

/// A file that was opened, by its path as this host sees it.
pub type Opened = (PathBuf, Result<Contents, ExecutableError>);

/// A debug file.
#[derive(Debug, PartialEq, Eq)]
pub struct DebugFile {
    /// Where it is, as this host sees it.
    pub path: PathBuf,
    /// All its bytes, 128 MiB at most.
    pub data: Vec<u8>,
}

/// The result of a search.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The first file that was accepted.
    pub found: Option<DebugFile>,
    /// Files that were rejected, each with the reason.
    pub ignored: Vec<String>,
    /// Whether the executable has no debug information, and no debug file was found.
    pub is_missing: bool,
}

impl Search {
    /// Returns the bytes of the file that was found.
    pub fn data(&self) -> Option<&[u8]> {
        self.found.as_ref().map(|file| file.data.as_slice())
    }
}

/// Returns the directory that process `pid` sees as `/`.
pub fn root_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// Returns the number of the mount namespace of process `pid`. Its creator chose the files that its processes see.
///
/// # Errors
///
/// Fails if the process has ended, or may not be looked into.
pub fn mount_namespace(pid: u32) -> io::Result<u64> {
    Ok(std::fs::metadata(format!("/proc/{pid}/ns/mnt"))?.ino())
}

/// Returns where the debug file of an executable with these names may be, in order: in `directories` of this host, then
/// where the process would find it.
pub fn debug_places(directories: &[PathBuf], names: &DebugFileNames, exe: &Path, root: &Path) -> Vec<DebugPlace> {
    candidates(directories, Wanted { exe, root, build_id: names.build_id.as_deref(), link: names.link.as_deref() })
}

impl DebugPlace {
    /// Opens what is there.
    pub fn open(&self) -> Opened {
        let below = self.path.strip_prefix("/").unwrap_or(&self.path);
        let seen = self.root.join(below);
        let file = open_in(&self.root, &self.path).and_then(|file| Contents::of(file, &seen));
        (seen, file)
    }
}

/// Takes the first of these files that `accept` accepts. Its error says why a file with this content is not the right
/// one.
pub fn search(files: impl IntoIterator<Item = Opened>, accept: impl Fn(&[u8]) -> Result<(), String>) -> Search {
    let mut search = Search::default();
    for (seen, file) in files {
        let read = file.and_then(Contents::read);
        let refused = match read.map(|data| (accept(&data), data)) {
            Ok((Ok(()), data)) => {
                search.found = Some(DebugFile { path: seen, data });
                return search;
            }
            Ok((Err(why), _)) => format!("{}: {why}", seen.display()),
            Err(ExecutableError::Gone(_) | ExecutableError::Missing(_)) => continue,
            Err(error) => error.to_string(),
        };
        if !search.ignored.contains(&refused) {
            search.ignored.push(refused);
        }
    }
    search.is_missing = true;
    search
}

fn candidates(directories: &[PathBuf], wanted: Wanted<'_>) -> Vec<DebugPlace> {
    let host = Path::new("/");
    let default = Path::new(DEFAULT_DIRECTORY);
    let mut found = Vec::new();
    let place = |root: &Path, path| DebugPlace { root: root.to_owned(), path };
    let mut below = |root: &Path, directory: &Path| {
        let by_build_id = by_build_id(directory, wanted.build_id);
        let both = by_build_id.into_iter().chain(by_link(directory, &wanted));
        found.extend(both.map(|path| place(root, path)));
    };
    for directory in directories {
        // A directory that cannot be made absolute does not exist.
        if let Ok(directory) = std::path::absolute(directory) {
            below(host, &directory);
        }
    }
    below(wanted.root, default);
    if wanted.root != host {
        below(host, default);
    }
    if let (Some(link), Some(beside)) = (wanted.link.and_then(file_name), wanted.exe.parent()) {
        found.push(place(wanted.root, beside.join(link)));
        found.push(place(wanted.root, beside.join(".debug").join(link)));
    }
    // The executable may have the same name as its debug file.
    found.retain(|place| place.path != wanted.exe);
    found
}

fn by_build_id(directory: &Path, build_id: Option<&str>) -> Option<PathBuf> {
    let (first, rest) = build_id?.split_at_checked(2)?;
    let name = format!("{rest}.debug");
    Some(directory.join(".build-id").join(first).join(name))
}

fn by_link(directory: &Path, wanted: &Wanted<'_>) -> Option<PathBuf> {
    let link = file_name(wanted.link?)?;
    let beside = wanted.exe.parent()?.strip_prefix("/").ok()?;
    Some(directory.join(beside).join(link))
}

/// Returns `name` if it is a file name alone, not a path.
fn file_name(name: &str) -> Option<&str> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Some(name),
        _ => None,
    }
}

/// Opens a regular file as a process with the root directory `root` would: symbolic links lead to files below it.
pub(crate) fn open_in(root: &Path, path: &Path) -> Result<File, ExecutableError> {
    let error = |errno: rustix::io::Errno| ExecutableError::of(path, errno.into());
    let directory =
        openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(error)?;
    let file = openat2(
        directory,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(error)?;
    reopened(&file).map_err(|source| ExecutableError::of(path, source))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::{DebugPlace, Wanted, candidates};

    const BUILD_ID: &str = "ab0123";

    fn write(path: &Path, content: &str) -> anyhow::Result<()> {
        let directory = path.parent().unwrap_or(path);
        std::fs::create_dir_all(directory)?;
        std::fs::write(path, content)?;
        Ok(())
    }

    fn is_right(data: &[u8]) -> Result<(), String> {
        match data == b"right" {
            true => Ok(()),
            false => Err("wrong".to_owned()),
        }
    }

    fn search(directories: &[PathBuf], wanted: Wanted<'_>) -> super::Search {
        let places = candidates(directories, wanted);
        super::search(places.iter().map(DebugPlace::open), is_right)
    }

    #[test]
    fn a_debug_file_is_found_in_each_of_its_places_and_in_order() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let given = tempfile::tempdir()?;
        let wanted = Wanted {
            exe: Path::new("/opt/redis/redis-server"),
            root: root.path(),
            build_id: Some(BUILD_ID),
            link: Some("redis.debug"),
        };
        // From the last place that is looked at to the first.
        let places = [
            root.path().join("opt/redis/.debug/redis.debug"),
            root.path().join("opt/redis/redis.debug"),
            root.path().join("usr/lib/debug/opt/redis/redis.debug"),
            root.path().join("usr/lib/debug/.build-id/ab/0123.debug"),
            given.path().join("opt/redis/redis.debug"),
            given.path().join(".build-id/ab/0123.debug"),
        ];
        let directories = [given.path().to_owned()];
        let search = || search(&directories, wanted);
        assert_eq!(search().found, None);
        for place in &places {
            write(place, "right")?;
            let found = search().found.map(|file| file.path);
            assert_eq!(found.as_ref(), Some(place));
        }
        // The file in the way is reported, and the next one is taken.
        write(&places[5], "another build")?;
        let search = search();
        assert_eq!(search.ignored.len(), 1, "{:?}", search.ignored);
        assert!(search.ignored[0].ends_with("0123.debug: wrong"));
        assert_eq!(search.found.map(|file| file.path), Some(places[4].clone()));
        Ok(())
    }

    #[test]
    fn links_of_a_container_do_not_lead_out_of_it() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let outside = tempfile::tempdir()?;
        write(&outside.path().join("secret"), "right")?;
        let by_id = root.path().join("usr/lib/debug/.build-id/ab");
        std::fs::create_dir_all(&by_id)?;
        symlink(outside.path().join("secret"), by_id.join("0123.debug"))?;
        let wanted = Wanted {
            exe: Path::new("/redis-server"),
            root: root.path(),
            build_id: Some(BUILD_ID),
            link: Some("../../secret"),
        };
        assert_eq!(search(&[], wanted).found, None);

        // One that stays inside is followed, though it is absolute.
        write(&root.path().join("secret"), "right")?;
        std::fs::remove_file(by_id.join("0123.debug"))?;
        symlink("/secret", by_id.join("0123.debug"))?;
        assert!(search(&[], wanted).found.is_some());
        Ok(())
    }
}
