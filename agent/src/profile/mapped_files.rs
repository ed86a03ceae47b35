//! Which files a process has code of in its memory, and where.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evictscope_host::{Executable, ExecutableId, find_debug_file, root_of};
use evictscope_plan::{CodeFile, FileAddress, FileOffset, ProbePlan, ProcessAddress};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

/// Most mappings of code that are looked at; a server has five, and some for each module.
const MAX_MAPPINGS: usize = 256;
/// Most files that are remembered.
const MAX_FILES: usize = 16;
/// Largest vdso, in bytes.
const MAX_VDSO: u64 = 64 << 10;

/// What was learnt of files, for as long as it may be needed again.
pub struct Files {
    /// Where debug files are looked for first.
    debug_dirs: Vec<PathBuf>,
    known: HashMap<ExecutableId, Known>,
    turn: u64,
}

struct Known {
    file: Option<Arc<CodeFile>>,
    used: u64,
}

/// A mapping of code.
#[derive(Clone)]
pub struct Mapping {
    begin: u64,
    end: u64,
    /// What to call the file.
    pub name: String,
    /// The file and the bias that it is loaded with; `None` where it cannot be read.
    file: Option<(Arc<CodeFile>, u64)>,
    /// Whether it is where the kernel returns to behind a probe on a return.
    pub is_return_probe: bool,
}

/// An address of a process that is in a file.
pub struct Place<'a> {
    /// The file.
    pub file: &'a CodeFile,
    /// The address in it.
    pub at: FileAddress,
    bias: u64,
}

impl Place<'_> {
    /// Returns where calls of the function here return to, as far as that is known of it.
    pub fn returns(&self) -> Vec<u64> {
        let returns = self.file.returns(self.at).iter();
        returns.map(|at| at.at(self.bias).get()).collect()
    }
}

/// The mappings of code of one process, by address.
#[derive(Default)]
pub struct Mappings(Vec<Mapping>);

/// The server that is looked at.
#[derive(Clone)]
pub struct Subject {
    /// Process id.
    pub pid: u32,
    /// What it runs, open.
    pub executable: Arc<Executable>,
    /// The path of that, as the process sees it.
    pub path: PathBuf,
    /// What to call it where a function of it has no name. Its file may be called after another program.
    pub command: String,
    /// What is known of that.
    pub plan: Arc<ProbePlan>,
}

impl Mappings {
    /// Reads what the process has mapped now.
    ///
    /// # Errors
    ///
    /// Fails where it has ended or may not be looked into.
    pub fn read(subject: &Subject, files: &mut Files) -> procfs::ProcResult<Self> {
        let process = Process::new(subject.pid.cast_signed())?;
        let exe = std::fs::read_link(format!("/proc/{}/exe", subject.pid)).ok();
        let maps = process.maps()?;
        let code = maps
            .iter()
            .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
            .take(MAX_MAPPINGS);
        let mut found: Vec<Mapping> = code
            .map(|map| {
                let is_executable =
                    matches!(&map.pathname, MMapPath::Path(path) if Some(path) == exe.as_ref());
                let file = match &map.pathname {
                    _ if is_executable => files.executable(subject),
                    MMapPath::Path(path) => files.library(subject, map, path),
                    MMapPath::Vdso => vdso(subject.pid, map).map(Arc::new),
                    _ => None,
                };
                let bias = |file: Arc<CodeFile>| {
                    let at = file.mapped_code(FileOffset::new(map.offset))?;
                    let bias = ProcessAddress::new(map.address.0).get().wrapping_sub(at.get());
                    Some((file, bias))
                };
                Mapping {
                    begin: map.address.0,
                    end: map.address.1,
                    name: match is_executable {
                        true => subject.command.clone(),
                        false => name(&map.pathname),
                    },
                    file: file.and_then(bias),
                    is_return_probe: matches!(&map.pathname, MMapPath::Other(name) if name == "uprobes"),
                }
            })
            .collect();
        found.sort_unstable_by_key(|mapping| mapping.begin);
        Ok(Self(found))
    }

    /// Returns the mapping that an address is in.
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let behind = self.0.partition_point(|mapping| mapping.begin <= address);
        let mapping = self.0.get(behind.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }
}

impl Mapping {
    /// Returns where in its file an address is.
    pub fn place(&self, address: u64) -> Option<Place<'_>> {
        let (file, bias) = self.file.as_ref()?;
        Some(Place {
            file,
            at: ProcessAddress::new(address).in_file(*bias),
            bias: *bias,
        })
    }
}

impl Files {
    /// Begins with none.
    pub fn new(debug_dirs: Vec<PathBuf>) -> Self {
        Self {
            debug_dirs,
            known: HashMap::new(),
            turn: 0,
        }
    }

    fn executable(&mut self, subject: &Subject) -> Option<Arc<CodeFile>> {
        let Subject {
            executable,
            path,
            plan,
            pid,
            ..
        } = subject;
        let debug_dirs = self.debug_dirs.clone();
        self.remembered(executable.id(), || {
            let data = executable.read().ok()?;
            let debug = find_debug_file(&debug_dirs, &data, path, &root_of(*pid));
            let debug = debug.unwrap_or_default();
            CodeFile::read(&data, debug.data(), Some(plan)).ok()
        })
    }

    /// Reads a shared library, if it is the file that is mapped.
    fn library(
        &mut self,
        subject: &Subject,
        map: &MemoryMap,
        path: &Path,
    ) -> Option<Arc<CodeFile>> {
        let below = path.strip_prefix("/").ok()?;
        let file = Executable::open(&root_of(subject.pid).join(below)).ok()?;
        // The device of a mapping is another one on btrfs, and on overlayfs before Linux 6.8.
        if map.inode != file.file().metadata().ok()?.ino() {
            return None;
        }
        self.remembered(file.id(), || {
            CodeFile::read(&file.read().ok()?, None, None).ok()
        })
    }

    fn remembered(
        &mut self,
        id: ExecutableId,
        read: impl FnOnce() -> Option<CodeFile>,
    ) -> Option<Arc<CodeFile>> {
        self.turn += 1;
        if !self.known.contains_key(&id) {
            if self.known.len() >= MAX_FILES
                && let Some(oldest) = self.known.iter().min_by_key(|(_, known)| known.used)
            {
                let oldest = *oldest.0;
                self.known.remove(&oldest);
            }
            let file = read().map(Arc::new);
            self.known.insert(id, Known { file, used: 0 });
        }
        let known = self.known.get_mut(&id)?;
        known.used = self.turn;
        known.file.clone()
    }
}

/// Reads the code that the kernel gives to each process, from the memory of one.
fn vdso(pid: u32, map: &MemoryMap) -> Option<CodeFile> {
    let length = map.address.1.checked_sub(map.address.0)?.min(MAX_VDSO);
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, map.address.0).ok()?;
    CodeFile::read(&bytes, None, None).ok()
}

/// Returns what to call the file of a mapping.
fn name(path: &MMapPath) -> String {
    match path {
        MMapPath::Path(path) => {
            let name = path.file_name().unwrap_or(path.as_os_str());
            // A file that was replaced.
            let name = name.to_string_lossy();
            name.trim_end_matches(" (deleted)").to_owned()
        }
        MMapPath::Vdso => "vdso".to_owned(),
        MMapPath::Vsyscall => "vsyscall".to_owned(),
        MMapPath::Other(name) => name.clone(),
        _ => "anonymous".to_owned(),
    }
}
