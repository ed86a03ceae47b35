//! Finds the separate file with an executable's debug information, and the package that installed the executable, whose
//! debug information it is.
//!
//! The search follows debuggers: by build id below a directory of debug files, and by the name in
//! `.gnu_debuglink` beside the executable, in `.debug/` there, and below that directory. A process in
//! a container has files of its own, so the search starts from its root directory and stays below it.

use std::io;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use evictscope_plan::DebugFileNames;

use crate::executable::{Contents, ExecutableError};
use crate::names::printable;
use crate::regular::open_in;

/// Where distributions put debug files.
const DEFAULT_DIRECTORY: &str = "/usr/lib/debug";

/// Where a debug file may be.
pub struct DebugPlace {
    /// The root directory to look below.
    pub root: PathBuf,
    /// Its absolute path there.
    pub path: PathBuf,
}

/// A file that was opened, by its path as this host sees it.
pub type OpenedDebugFile = (PathBuf, Result<Contents, ExecutableError>);

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
    pub fn data(&self) -> Option<&[u8]> {
        self.found.as_ref().map(|file| file.data.as_slice())
    }
}

/// Returns the directory that process `pid` sees as `/`.
pub fn root_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// Returns the number of the mount namespace of process `pid`. Its creator chose the files that its processes see.
/// Fails if the process has ended, or may not be looked into.
pub fn mount_namespace(pid: u32) -> io::Result<u64> {
    Ok(std::fs::metadata(format!("/proc/{pid}/ns/mnt"))?.ino())
}

/// Returns where the debug file of an executable with these names may be, in order: in `directories` of this host, then
/// where the process would find it. `exe` is the path of the executable below the root directory `root`: `/`, or
/// `/proc/PID/root`.
pub fn debug_places(directories: &[PathBuf], names: &DebugFileNames, exe: &Path, root: &Path) -> Vec<DebugPlace> {
    let (host, default) = (Path::new("/"), Path::new(DEFAULT_DIRECTORY));
    let link = names.link.as_deref().and_then(file_name);
    let place = |root: &Path, path| DebugPlace { root: root.to_owned(), path };
    let mut found = Vec::new();
    let mut below = |root: &Path, directory: &Path| {
        let by_link = || Some(directory.join(exe.parent()?.strip_prefix("/").ok()?).join(link?));
        let both = by_build_id(directory, names.build_id.as_deref()).into_iter().chain(by_link());
        found.extend(both.map(|path| place(root, path)));
    };
    for directory in directories {
        // A directory that cannot be made absolute does not exist.
        if let Ok(directory) = std::path::absolute(directory) {
            below(host, &directory);
        }
    }
    below(root, default);
    if root != host {
        below(host, default);
    }
    if let (Some(link), Some(beside)) = (link, exe.parent()) {
        found.push(place(root, beside.join(link)));
        found.push(place(root, beside.join(".debug").join(link)));
    }
    // The executable may have the same name as its debug file.
    found.retain(|place| place.path != exe);
    found
}

impl DebugPlace {
    pub fn open(&self) -> OpenedDebugFile {
        let seen = self.root.join(self.path.strip_prefix("/").unwrap_or(&self.path));
        let file = open_in(&self.root, &self.path).and_then(|file| Contents::of(file, &seen));
        (seen, file)
    }
}

/// Takes the first of these files that `accept` accepts. Its error says why a file with this content is not the right
/// one.
pub fn search(
    files: impl IntoIterator<Item = OpenedDebugFile>,
    accept: impl Fn(&[u8]) -> Result<(), String>,
) -> Search {
    let mut search = Search::default();
    for (seen, file) in files {
        let refused = match file.and_then(Contents::read).map(|data| (accept(&data), data)) {
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

fn by_build_id(directory: &Path, build_id: Option<&str>) -> Option<PathBuf> {
    let (first, rest) = build_id?.split_at_checked(2)?;
    Some(directory.join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Returns `name` if it is a file name alone, not a path.
fn file_name(name: &str) -> Option<&str> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Some(name),
        _ => None,
    }
}

/// Where dpkg keeps one list of files for each package (dpkg(1), FILES).
const LISTS: &str = "var/lib/dpkg/info";
/// The most packages to look through.
const MAX_PACKAGES: usize = 20_000;
/// The most bytes of a list that is read, and of all lists. Those of 3,000 packages have 40 MiB.
const MAX_LIST: u64 = 16 << 20;
const MAX_BYTES: u64 = 1 << 30;

/// Returns the Debian package that installed the file called `exe` below the directory `root`, if any. Blocks.
pub fn package_of(exe: &Path, root: &Path) -> Option<String> {
    let wanted = exe.to_str()?;
    let mut left = MAX_BYTES;
    for list in std::fs::read_dir(root.join(LISTS)).ok()?.flatten().take(MAX_PACKAGES) {
        let name = list.file_name();
        let Some(package) = name.to_str().and_then(|name| name.strip_suffix(".list")) else { continue };
        let Ok(file) = open_in(root, &Path::new("/").join(LISTS).join(&name)) else { continue };
        let bytes = file.metadata().ok()?.len().min(MAX_LIST);
        left = left.checked_sub(bytes)?;
        if BufReader::new(file.take(bytes)).lines().map_while(Result::ok).any(|line| line == wanted) {
            // If a package is installed for several architectures, one of them follows its name.
            return package.split(':').next().map(printable);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::{DebugFileNames, DebugPlace, LISTS, debug_places, package_of};

    fn write(path: &Path, content: &str) -> anyhow::Result<()> {
        let directory = path.parent().unwrap_or(path);
        std::fs::create_dir_all(directory)?;
        std::fs::write(path, content)?;
        Ok(())
    }

    /// Searches for a file of build id `ab0123` that contains "right".
    fn search(directories: &[PathBuf], link: &str, exe: &str, root: &Path) -> super::Search {
        let is_right = |data: &[u8]| (data == b"right").then_some(()).ok_or("wrong".to_owned());
        let (build_id, link) = (Some("ab0123".to_owned()), Some(link.to_owned()));
        let names = DebugFileNames { build_id, link, crc: None };
        let places = debug_places(directories, &names, Path::new(exe), root);
        super::search(places.iter().map(DebugPlace::open), is_right)
    }

    #[test]
    fn a_debug_file_is_found_in_each_of_its_places_and_in_order() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let given = tempfile::tempdir()?;
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
        let search = || search(&directories, "redis.debug", "/opt/redis/redis-server", root.path());
        assert_eq!(search().found, None);
        for place in &places {
            write(place, "right")?;
            assert_eq!(search().found.map(|file| file.path).as_ref(), Some(place));
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
        let search = || search(&[], "../../secret", "/redis-server", root.path());
        assert_eq!(search().found, None);

        // One that stays inside is followed, though it is absolute.
        write(&root.path().join("secret"), "right")?;
        std::fs::remove_file(by_id.join("0123.debug"))?;
        symlink("/secret", by_id.join("0123.debug"))?;
        assert!(search().found.is_some());
        Ok(())
    }

    #[test]
    fn the_package_is_the_one_whose_list_has_the_file() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let exe = Path::new("/usr/bin/redis-check-rdb");
        assert_eq!(package_of(exe, root.path()), None);
        let lists = root.path().join(LISTS);
        std::fs::create_dir_all(&lists)?;
        for (list, files) in [
            ("redis-server.list", "/.\n/usr/bin/redis-server\n"),
            ("redis-tools:amd64.list", "/.\n/usr/bin/redis-check-rdb\n"),
            ("redis-tools:amd64.md5sums", "/usr/bin/redis-check-rdb\n"),
        ] {
            std::fs::write(lists.join(list), files)?;
        }
        assert_eq!(package_of(exe, root.path()).as_deref(), Some("redis-tools"));
        Ok(())
    }
}
