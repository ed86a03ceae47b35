//! Starts the process that plans, reads its answer, and makes sure that it ends. Few of them run at once; one that
//! waits for a file system lets another begin.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use borsh::BorshDeserialize;
use evictscope_host::{Executable, Scheduling};
use evictscope_model::answers::UnwatchedReason;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Failure;
use super::answer::{CPU_SECONDS, NoAnswer};

/// How long it may sleep: it never waits for anything but a file system. Waiting for a CPU is not sleeping.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a process that says nothing is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Why a process cannot be killed.
const SILENT: &str = "its file system does not answer";
/// How long it may sleep once it has said all, or is killed. A process that waits for a file system cannot be killed.
const KILL_PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of an answer. A plan has some thousands, and the unwind tables of a large library some millions.
const MAX_ANSWER: u64 = 64 << 20;
/// The most bytes to show of its output when it fails.
const MAX_SHOWN: usize = 400;
/// The most processes that cannot be killed.
const MAX_LEFT: usize = 64;
/// The most processes that plan at once.
const AT_ONCE: usize = 2;
/// The most that wait for a file system besides them.
const MAX_WAITING: usize = 64;
/// How long a process must sleep to count as waiting.
const ASLEEP: Duration = Duration::from_secs(1);

/// What a process that cannot be killed may be waiting for: the device of the executable, or anything below the root
/// directory where other files were looked for.
pub type AwaitedFiles = (u64, Option<PathBuf>);

/// The processes that could not be killed yet.
static LEFT: Mutex<Vec<(AwaitedFiles, Child)>> = Mutex::new(Vec::new());

/// Asks about a file, which is called `path`. It is `executable`, or found by the arguments. The answer may wait for
/// `waits`. Fails if the process has no answer, or was ended without one.
pub fn ask<T: BorshDeserialize>(
    executable: Option<&Executable>,
    path: &Path,
    waits: AwaitedFiles,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<T, Failure> {
    let resources = |error: &dyn Display| Failure {
        reason: UnwatchedReason::Resources,
        is_for_good: false,
        why: format!("{} could not be analysed: {error}", path.display()),
    };
    let mut turn = Turn::begin();
    if is_waited_for(&waits) {
        return Err(resources(&SILENT));
    }
    let (child, answer) = start(executable, path, arguments).map_err(|error| resources(&error))?;
    let slept = slept_by(child.id());
    let answer = read(&answer, || {
        let slept = slept();
        turn.yield_if_asleep(slept);
        slept < PATIENCE
    });
    let Some(status) = end(child, waits, slept) else { return Err(resources(&SILENT)) };
    let failed = |why: String| Failure {
        reason: UnwatchedReason::Planning,
        is_for_good: true,
        why: format!("{} could not be analysed: {why}", path.display()),
    };
    let answer = answer.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => resources(&SILENT),
        _ => failed(error.to_string()),
    })?;
    if !status.success() {
        let why = ending(status, &answer);
        return Err(if is_from_outside(status) { resources(&why) } else { failed(why) });
    }
    let answer: Result<T, NoAnswer> = borsh::from_slice(&answer).map_err(|error| failed(error.to_string()))?;
    answer.map_err(|trouble| match trouble {
        NoAnswer::Unreadable(why) => Failure { reason: UnwatchedReason::Permission, is_for_good: false, why },
        NoAnswer::Refused(why) => Failure { reason: UnwatchedReason::Executable, is_for_good: true, why },
    })
}

fn start(
    executable: Option<&Executable>,
    path: &Path,
    arguments: impl IntoIterator<Item = OsString>,
) -> io::Result<(Child, PipeReader)> {
    let (answer, output) = io::pipe()?;
    let input = if let Some(executable) = executable { executable.file().try_clone()?.into() } else { Stdio::null() };
    let (options, places): (Vec<_>, Vec<_>) =
        arguments.into_iter().partition(|argument| argument.as_encoded_bytes().starts_with(b"--"));
    let child = Command::new("/proc/self/exe")
        .arg0("evictscope-planner")
        .arg("planner")
        .args(options)
        .arg("--")
        .arg(path)
        .args(places)
        .env_clear()
        .stdin(input)
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    Ok((child, answer))
}

/// Returns a function that says how long a process that starts now has slept.
fn slept_by(pid: u32) -> impl Fn() -> Duration {
    let started = Instant::now();
    let process = Scheduling::of(pid);
    move || {
        let age = started.elapsed();
        // If the kernel does not say, it may have slept all the time.
        process.as_ref().and_then(|process| process.slept(age)).unwrap_or(age)
    }
}

/// Reads all that it says; while it says nothing, goes on as long as `may_go_on`.
fn read(mut answer: &PipeReader, mut may_go_on: impl FnMut() -> bool) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        while !is_ready(answer) {
            if !may_go_on() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let mut some = [0; 4096];
        match answer.read(&mut some)? {
            0 => return Ok(all),
            read => all.extend_from_slice(&some[..read]),
        }
        if all.len() as u64 > MAX_ANSWER {
            return Err(io::Error::other("the answer has no end"));
        }
    }
}

/// Waits until it has ended, kills it if it does not, and leaves it alone if it cannot be killed.
fn end(mut child: Child, waits: AwaitedFiles, slept: impl Fn() -> Duration) -> Option<ExitStatus> {
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let has_ended = || {
        let before = slept();
        ended.as_ref().is_ok_and(|ended| {
            while !is_ready(ended) {
                if slept() >= before + KILL_PATIENCE {
                    return false;
                }
            }
            true
        })
    };
    // A process that has said all ends at once.
    if !has_ended() {
        // It may have ended by now.
        let _ = child.kill();
        has_ended();
    }
    let status = child.try_wait().ok().flatten();
    if status.is_none() {
        LEFT.lock().push((waits, child));
    }
    status
}

/// Returns whether one more process would wait forever.
fn is_waited_for((device, root): &AwaitedFiles) -> bool {
    let mut left = LEFT.lock();
    left.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    let waits = |(on, below): &AwaitedFiles| on == device && (below.is_none() || below == root);
    left.len() >= MAX_LEFT || left.iter().any(|(other, _)| waits(other))
}

/// Waits a moment for a file to be ready.
fn is_ready(file: &impl AsFd) -> bool {
    let moment = Timespec::try_from(LOOK).ok();
    let mut waited = [PollFd::new(file, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut waited, moment.as_ref())).is_ok_and(|ready| ready > 0)
}

/// Returns whether something else ended it: the kernel for want of memory, a control group, an operator. That says
/// nothing about the executable.
fn is_from_outside(status: ExitStatus) -> bool {
    const ENDS: [i32; 4] = [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    status.signal().is_some_and(|signal| ENDS.contains(&signal))
}

/// Says how it ended without an answer.
fn ending(status: ExitStatus, output: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&output[..output.len().min(MAX_SHOWN)]).replace(char::is_control, " ");
    match status.signal() {
        Some(libc::SIGXCPU) => format!("it took more than {CPU_SECONDS} s of CPU time"),
        _ => format!("the planning process failed ({status}): {}", shown.trim()),
    }
}

struct Count {
    planning: usize,
    waiting: usize,
}

static COUNT: Mutex<Count> = Mutex::new(Count { planning: 0, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

/// The turn of one process, until it is dropped.
struct Turn {
    is_waiting: bool,
}

impl Turn {
    fn begin() -> Self {
        let mut count = COUNT.lock();
        CHANGED.wait_while(&mut count, |count| count.planning >= AT_ONCE);
        count.planning += 1;
        Self { is_waiting: false }
    }

    /// Lets another process begin if this one has slept for so long that it can only be waiting to read.
    fn yield_if_asleep(&mut self, slept: Duration) {
        if self.is_waiting {
            return;
        }
        let mut count = COUNT.lock();
        if slept >= ASLEEP && count.waiting < MAX_WAITING {
            self.is_waiting = true;
            count.planning -= 1;
            count.waiting += 1;
            CHANGED.notify_one();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut count = COUNT.lock();
        if self.is_waiting {
            count.waiting -= 1
        } else {
            count.planning -= 1
        }
        CHANGED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::{ending, is_from_outside};

    #[test]
    fn a_panic_is_told_in_one_line_and_the_limit_by_name() {
        let status = ExitStatus::from_raw(101 << 8);
        let panic = ending(status, b"thread 'main' panicked at plan.rs:1:\nindex out of bounds\n");
        assert!(panic.ends_with("at plan.rs:1: index out of bounds"), "{panic}");
        let limit = ending(ExitStatus::from_raw(libc::SIGXCPU), b"");
        assert!(limit.contains("CPU time"), "{limit}");
    }

    #[test]
    fn only_what_others_did_is_tried_again() {
        assert!(is_from_outside(ExitStatus::from_raw(libc::SIGKILL)));
        for status in [libc::SIGXCPU, libc::SIGSEGV, libc::SIGBUS, 101 << 8] {
            assert!(!is_from_outside(ExitStatus::from_raw(status)), "{status}");
        }
    }
}
