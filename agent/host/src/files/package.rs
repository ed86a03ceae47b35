//! Finds the distribution's package that has an executable.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use super::debug_file::open_in;
use crate::printable::printable;

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
    let lists = std::fs::read_dir(root.join(LISTS)).ok()?.flatten();
    let mut left = MAX_BYTES;
    for list in lists.take(MAX_PACKAGES) {
        let name = list.file_name();
        let Some(package) = name.to_str().and_then(|name| name.strip_suffix(".list")) else {
            continue;
        };
        let path = Path::new("/").join(LISTS).join(&name);
        let Ok(file) = open_in(root, &path) else {
            continue;
        };
        let bytes = file.metadata().ok()?.len().min(MAX_LIST);
        left = left.checked_sub(bytes)?;
        let mut lines = BufReader::new(file.take(bytes)).lines().map_while(Result::ok);
        if lines.any(|line| line == wanted) {
            // If a package is installed for several architectures, one of them follows its name.
            return package.split(':').next().map(printable);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LISTS, package_of};

    #[test]
    fn the_package_is_the_one_whose_list_has_the_file() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let exe = Path::new("/usr/bin/redis-check-rdb");
        assert_eq!(package_of(exe, root.path()), None);
        let lists = root.path().join(LISTS);
        std::fs::create_dir_all(&lists)?;
        std::fs::write(lists.join("redis-server.list"), "/.\n/usr/bin/redis-server\n")?;
        std::fs::write(lists.join("redis-tools:amd64.list"), "/.\n/usr/bin/redis-check-rdb\n")?;
        std::fs::write(lists.join("redis-tools:amd64.md5sums"), "/usr/bin/redis-check-rdb\n")?;
        assert_eq!(package_of(exe, root.path()).as_deref(), Some("redis-tools"));
        Ok(())
    }
}
