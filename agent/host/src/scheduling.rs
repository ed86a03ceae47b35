//! Measures how long a process's main thread has run, and has waited for a CPU.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// The scheduling of the main thread of one process, which no later process with the same pid can take over.
#[derive(Debug)]
pub struct Scheduling {
    times: File,
    /// Where in the kernel it sleeps; `None` if the kernel does not say.
    channel: Option<File>,
    status: Option<File>,
    children: Option<File>,
}

impl Scheduling {
    /// Opens a running process. Returns `None` if it has ended or the kernel does not count this.
    pub fn of(pid: u32) -> Option<Self> {
        let open = |name| File::open(format!("/proc/{pid}/task/{pid}/{name}")).ok();
        Some(Self {
            times: open("schedstat")?,
            channel: open("wchan"),
            status: open("status"),
            children: open("children"),
        })
    }

    /// Returns whether the thread sleeps in its event loop, `epoll_wait(2)`. Returns `None` if it runs, or the kernel
    /// does not say (`wchan` of proc(5)).
    pub fn is_resting(&self) -> Option<bool> {
        let mut text = [0; 64];
        match read(self.channel.as_ref()?, &mut text)? {
            "" | "0" => None,
            // The function that sleeps, or the one that it was inlined into.
            function => Some(["do_epoll_wait", "ep_poll"].contains(&function)),
        }
    }

    /// Returns how often the thread has gone to sleep since its start (`voluntary_ctxt_switches` of proc(5)). Returns
    /// `None` if the kernel does not say.
    pub fn sleeps(&self) -> Option<u64> {
        let mut text = [0; 4096];
        self.status(&mut text, "voluntary_ctxt_switches:")?.parse().ok()
    }

    /// Returns for how long the thread, started `age` ago, has slept: it neither ran nor waited for a CPU. Returns 0
    /// while it is ready to run, because the kernel counts a wait for a CPU only once it is over. Returns `None` if the
    /// process has ended.
    pub fn slept(&self, age: Duration) -> Option<Duration> {
        let mut text = [0; 4096];
        if self.status(&mut text, "State:")?.starts_with('R') {
            return Some(Duration::ZERO);
        }
        let (ran, wanted) = self.times_ns()?;
        Some(age.saturating_sub(Duration::from_nanos(ran.saturating_add(wanted))))
    }

    fn status<'a>(&self, text: &'a mut [u8], name: &str) -> Option<&'a str> {
        read(self.status.as_ref()?, text)?.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// Returns for how many nanoseconds the thread's running child, one that writes an RDB or AOF file, has been on a
    /// CPU. Returns `None` if it has none, or the kernel does not say (`children` of proc(5)).
    pub fn child_ns(&self) -> Option<u64> {
        let (mut text, mut times) = ([0; 16], [0; 64]);
        let child = read(self.children.as_ref()?, &mut text)?.split_whitespace().next()?;
        let file = File::open(format!("/proc/{child}/schedstat")).ok()?;
        read(&file, &mut times)?.split_whitespace().next()?.parse().ok()
    }

    /// Returns for how many nanoseconds since its start the thread was on a CPU, and for how many it was ready to
    /// run but had none, because of other threads or a quota (`schedstat` of proc(5)). The first is brought
    /// up to date when the thread is switched out, and at each tick. Returns `None` if the process has ended.
    pub fn times_ns(&self) -> Option<(u64, u64)> {
        let mut text = [0; 64];
        let mut words = read(&self.times, &mut text)?.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    }
}

/// Reads a file of `/proc` from its start, as far as there is room.
fn read<'a>(file: &File, text: &'a mut [u8]) -> Option<&'a str> {
    let len = file.read_at(text, 0).ok()?;
    std::str::from_utf8(text.get(..len)?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use evictscope_testkit::process::Owned;

    use super::Scheduling;

    #[test]
    fn the_times_of_a_process_never_go_back() {
        let own = Scheduling::of(std::process::id());
        let times = || own.as_ref().and_then(Scheduling::times_ns);
        let first = times();
        std::thread::yield_now();
        let second = times();
        assert!(first.is_some_and(|(cpu, _)| cpu > 0), "{first:?}");
        assert!(second.map(|times| times.0) >= first.map(|times| times.0));
        assert!(second.map(|times| times.1) >= first.map(|times| times.1));
        let sleeps = own.as_ref().and_then(Scheduling::sleeps);
        // Of the main thread, which waits for the tests.
        assert!(sleeps.is_some_and(|sleeps| sleeps > 0), "{sleeps:?}");
        assert!(Scheduling::of(u32::MAX).is_none());
    }

    #[test]
    fn what_has_nothing_to_do_sleeps_and_what_lacks_a_cpu_does_not() -> anyhow::Result<()> {
        let started = Instant::now();
        let slept = |child: &Owned| Scheduling::of(child.pid())?.slept(started.elapsed());
        let sleeping = Owned::start(Command::new("sleep").arg("600"))?;
        while slept(&sleeping).is_some_and(|slept| slept < Duration::from_millis(100)) {
            std::thread::yield_now();
        }
        assert!(slept(&sleeping).is_some());

        let mut busy = Command::new("sh");
        let (busy, _, output) = Owned::start_with_pipes(busy.args(["-c", "echo; while :; do :; done"]))?;
        BufReader::new(output).read_line(&mut String::new())?;
        let all: Vec<_> = (0..100).map(|_| slept(&busy)).collect();
        assert_eq!(all, [Some(Duration::ZERO); 100]);
        Ok(())
    }

    #[test]
    fn a_child_is_seen_while_it_runs() -> anyhow::Result<()> {
        let (shell, mut input, output) = Owned::start_with_pipes(&mut Command::new("sh"))?;
        let mut output = BufReader::new(output);
        let mut child_after = |command: &str| {
            writeln!(input, "{command}; echo done")?;
            output.read_line(&mut String::new())?;
            let child = Scheduling::of(shell.pid()).and_then(|shell| shell.child_ns());
            anyhow::Ok(child.is_some())
        };
        assert!(!child_after(":")?);
        assert!(child_after("sleep 600 & :")?);
        assert!(!child_after("kill $!; wait")?);
        Ok(())
    }
}
