//! A file system in user space (FUSE) that stops answering, as anybody's may.

use std::any::Any;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, redis};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request, SessionACL, spawn_mount,
};
use parking_lot::Mutex;
use tempfile::TempDir;

const FILE: INodeNo = INodeNo(2);

/// The requests that have not been answered; `None` while all are answered.
type Held = Arc<Mutex<Option<Vec<Box<dyn Any + Send>>>>>;

/// A file system with one program in it, which only the agents of this process look for.
pub struct SilentFiles {
    held: Held,
    _session: BackgroundSession,
    directory: TempDir,
    /// Shows the same program without revealing where it is.
    overlay: TempDir,
    name: String,
}

struct Files {
    content: Vec<u8>,
    name: String,
    held: Held,
}

impl SilentFiles {
    /// Mounts one whose program has this content. Needs root.
    pub fn mount(content: Vec<u8>) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (held, name) = (Held::default(), format!("{}silent", redis::prefix()));
        let files = Files { content, name: name.clone(), held: held.clone() };
        let mut config = Config::default();
        config.acl = SessionACL::All;
        let session = spawn_mount(files, directory.path(), &config);
        let session = session.context("cannot mount a file system in user space")?;
        let (overlay, empty) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let layers = [directory.path(), empty.path()].map(|layer| layer.display().to_string());
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o"]);
        mount.arg(format!("lowerdir={}", layers.join(":")));
        process::answer_of(mount.arg(overlay.path()))?;
        Ok(Self { held, _session: session, directory, overlay, name })
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Returns the path of the program in an overlay, which does not reveal its file system.
    pub fn path_in_overlay(&self) -> PathBuf {
        self.overlay.path().join(&self.name)
    }

    /// Stops answering requests, or answers all again: those that have waited fail.
    pub fn silence(&self, is_silent: bool) {
        *self.held.lock() = is_silent.then(Vec::new);
    }

    pub fn waiting(&self) -> usize {
        self.held.lock().as_ref().map_or(0, Vec::len)
    }
}

impl Drop for SilentFiles {
    fn drop(&mut self) {
        self.silence(false);
        // Even if a program on it still runs.
        for mounted in [&self.overlay, &self.directory] {
            let _ = Command::new("umount").arg("--lazy").arg(mounted.path()).status();
        }
    }
}

impl Files {
    fn of(&self, file: INodeNo) -> FileAttr {
        let is_file = file == FILE;
        FileAttr {
            ino: file,
            size: if is_file { self.content.len() as u64 } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Answers, unless it is to be silent.
    fn answer<R: Send + 'static>(&self, reply: R, answer: impl FnOnce(R)) {
        if let Some(held) = &mut *self.held.lock() { held.push(Box::new(reply)) } else { answer(reply) }
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer(reply, |reply| {
            match Path::new(name) == Path::new(&self.name) {
                // Nothing is remembered: each look at the file is a request.
                true => reply.entry(&Duration::ZERO, &self.of(FILE), Generation(0)),
                false => reply.error(Errno::ENOENT),
            }
        });
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(reply, |reply| reply.attr(&Duration::ZERO, &self.of(file)));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.answer(reply, |reply| {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let begin = self.content.len().min(offset as usize);
        let end = self.content.len().min(begin + size as usize);
        self.answer(reply, |reply| reply.data(&self.content[begin..end]));
    }
}
