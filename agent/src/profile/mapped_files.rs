//! Which files' code a process has mapped, and where.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evictscope_host::{Executable, mount_namespace, root_of};
use evictscope_model::{FileAddress, FileOffset, ProcessAddress};
use evictscope_plan::CodeFile;
use lru::LruCache;
use parking_lot::Mutex;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use rustix::fs::makedev;

use crate::planning::{self, code_of_mapped};

/// The most mappings of code to look at; a server has five, and some for each module.
const MAX_MAPPINGS: usize = 256;
/// The most files to remember; Debian's server has 19.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(32).unwrap();
/// The largest vdso, in bytes.
const MAX_VDSO: u64 = 64 << 10;

/// What is known about files, for as long as it may be needed again.
pub struct Files {
    debug_dirs: Vec<PathBuf>,
    known: Mutex<LruCache<MappedFile, KnownFile>>,
}

/// A file, if it has code, and when the process started that it was read for: no other file gets its number while that
/// process has it mapped.
type KnownFile = (Option<Arc<CodeFile>>, u64);

/// A file that processes of a mount namespace have mapped: its device and its inode number there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct MappedFile {
    namespace: u64,
    device: u64,
    inode: u64,
}

type Found = HashMap<MappedFile, Arc<CodeFile>>;

#[derive(Clone, Copy)]
struct MappedBy {
    namespace: u64,
    /// When it started, in ticks since boot.
    started: u64,
}

#[derive(Clone)]
pub struct Mapping {
    begin: u64,
    end: u64,
    /// What to call the file.
    pub name: String,
    /// The file and the bias that it is loaded with; `None` if it cannot be read.
    file: Option<(Arc<CodeFile>, u64)>,
    /// Whether it is the kernel's code that a function returns to if there is a probe on its return.
    pub is_return_probe: bool,
}

/// An address of a process that is in a file.
pub struct CodePlace<'a> {
    pub file: &'a CodeFile,
    pub at: FileAddress,
    bias: u64,
}

impl CodePlace<'_> {
    /// Returns where calls of the function here return to, as far as known.
    pub fn returns(&self) -> Vec<u64> {
        self.file.returns(self.at).iter().map(|at| at.at(self.bias).get()).collect()
    }
}

/// The mappings of code of one process, by address.
pub struct Mappings(Vec<Mapping>);

#[derive(Clone)]
pub struct ProfiledProcess {
    pub pid: u32,
    pub executable: Arc<Executable>,
    /// The path of its executable, as the process sees it.
    pub path: PathBuf,
    /// What to call its functions that have no name. Its file may have the name of another program.
    pub command: String,
}

impl Mappings {
    /// Reads what the process has mapped now. Waits for file systems. Fails if it has ended or may not be looked into.
    pub fn read(subject: &ProfiledProcess, files: &Files) -> procfs::ProcResult<Self> {
        let process = Process::new(subject.pid.cast_signed())?;
        let exe = std::fs::read_link(format!("/proc/{}/exe", subject.pid)).ok();
        let maps = process.maps()?;
        let is_code = |map: &&MemoryMap| map.perms.contains(MMPermissions::EXECUTE);
        let code: Vec<&MemoryMap> = maps.iter().filter(is_code).take(MAX_MAPPINGS).collect();
        let of = MappedBy { namespace: mount_namespace(subject.pid)?, started: process.stat()?.starttime };
        let known = files.of(subject, &code, exe.as_deref(), of);
        let mapping = |map: &MemoryMap| {
            let is_executable = matches!(&map.pathname, MMapPath::Path(path) if Some(path) == exe.as_ref());
            let file = match &map.pathname {
                MMapPath::Path(_) => known.get(&of.mapped(map)).cloned(),
                MMapPath::Vdso => vdso(subject.pid, map).map(Arc::new),
                _ => None,
            };
            let with_bias = |file: Arc<CodeFile>| {
                let at = file.mapped_code(FileOffset::new(map.offset))?;
                Some((file, map.address.0.wrapping_sub(at.get())))
            };
            Mapping {
                begin: map.address.0,
                end: map.address.1,
                name: if is_executable { subject.command.clone() } else { name(&map.pathname) },
                file: file.and_then(with_bias),
                is_return_probe: matches!(&map.pathname, MMapPath::Other(name) if name == "uprobes"),
            }
        };
        let mut found: Vec<Mapping> = code.into_iter().map(mapping).collect();
        found.sort_unstable_by_key(|mapping| mapping.begin);
        Ok(Self(found))
    }

    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let mapping = self.0.get(self.0.partition_point(|mapping| mapping.begin <= address).checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }
}

impl Mapping {
    /// Returns where in its file an address is.
    pub fn place(&self, address: u64) -> Option<CodePlace<'_>> {
        let (file, bias) = self.file.as_ref()?;
        Some(CodePlace { file, at: ProcessAddress::new(address).in_file(*bias), bias: *bias })
    }
}

impl Files {
    pub fn new(debug_dirs: Vec<PathBuf>) -> Self {
        Self { debug_dirs, known: Mutex::new(LruCache::new(MAX_FILES)) }
    }

    /// Returns the files of a process that have code and can be read in time.
    fn of(&self, subject: &ProfiledProcess, code: &[&MemoryMap], exe: Option<&Path>, of: MappedBy) -> Found {
        let (mut found, mut missing) = (Found::new(), HashMap::new());
        for map in code {
            let MMapPath::Path(path) = &map.pathname else { continue };
            let mapped = of.mapped(map);
            match self.known.lock().get(&mapped) {
                Some((file, since)) if *since >= of.started => found.extend(file.clone().map(|file| (mapped, file))),
                _ => drop(missing.insert(mapped, path.as_path())),
            }
        }
        let root = root_of(subject.pid);
        let executable = missing.iter().find(|(_, path)| Some(**path) == exe).map(|(mapped, _)| *mapped);
        let mut read = Vec::new();
        if let Some(mapped) = executable {
            missing.remove(&mapped);
            let ProfiledProcess { executable, path: exe, .. } = subject;
            let planned = planning::PlanRequest { executable, exe, root: &root, debug_dirs: &self.debug_dirs };
            read.extend(planned.code().map(|file| (mapped, Some(file))));
        }
        let (libraries, asked): (Vec<MappedFile>, Vec<(&Path, u64)>) =
            (missing.into_iter()).map(|(mapped, path)| (mapped, (path, mapped.inode))).unzip();
        if !asked.is_empty() {
            // On btrfs, and on overlayfs before Linux 6.8, a mapping has another device than its file.
            let files = code_of_mapped(&root, &asked).into_iter().flatten();
            read.extend(libraries.into_iter().zip(files));
        }
        for (mapped, file) in read {
            let file = file.map(Arc::new);
            self.known.lock().put(mapped, (file.clone(), of.started));
            found.extend(file.map(|file| (mapped, file)));
        }
        found
    }
}

impl MappedBy {
    fn mapped(self, map: &MemoryMap) -> MappedFile {
        let (major, minor) = map.dev;
        MappedFile {
            namespace: self.namespace,
            device: makedev(major.cast_unsigned(), minor.cast_unsigned()),
            inode: map.inode,
        }
    }
}

/// Reads the code that the kernel gives to each process, from the memory of process `pid`.
fn vdso(pid: u32, map: &MemoryMap) -> Option<CodeFile> {
    let mut bytes = vec![0; usize::try_from(map.address.1.checked_sub(map.address.0)?.min(MAX_VDSO)).ok()?];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    // Apart from the line above, which opens a file of the kernel's: tests/house.rs lists what reads memory.
    memory.read_exact_at(&mut bytes, map.address.0).ok()?;
    CodeFile::read(&bytes).ok()
}

fn name(path: &MMapPath) -> String {
    match path {
        MMapPath::Path(path) => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            // A file that was replaced.
            name.trim_end_matches(" (deleted)").to_owned()
        }
        MMapPath::Vdso => "vdso".to_owned(),
        MMapPath::Vsyscall => "vsyscall".to_owned(),
        MMapPath::Other(name) => name.clone(),
        _ => "anonymous".to_owned(),
    }
}
