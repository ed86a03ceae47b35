//! Throw-away servers for tests.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::{Pid, Signal, kill_process};

/// How long to wait for what a server does at once.
const PATIENCE: Duration = Duration::from_secs(10);

const SOCKET: &str = "socket";

/// A redis-server that ends with its test.
pub struct TestServer {
    pub pid: u32,
    pub port: u16,
    pub directory: tempfile::TempDir,
    child: Child,
}

impl TestServer {
    /// Starts `program` as a redis-server on a free port of the loopback interface and on a Unix
    /// socket, and waits until it answers. `None`, with the reason on the test's output, where redis-server is not
    /// installed.
    pub fn start(program: &Path, options: &[&str]) -> anyhow::Result<Option<Self>> {
        if !program.exists() {
            println!("skipped: {} is not installed", program.display());
            return Ok(None);
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = tempfile::tempdir()?;
        // A sentinel wants a configuration that it can write to.
        let configuration = directory.path().join("server.conf");
        std::fs::write(&configuration, "")?;
        let pid_file = directory.path().join("pid");
        let child = Command::new(program)
            .arg(&configuration)
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .arg("--dir")
            .arg(directory.path())
            .arg("--unixsocket")
            .arg(directory.path().join(SOCKET))
            .arg("--pidfile")
            .arg(&pid_file)
            .args(options)
            .stdout(Stdio::null())
            .spawn()?;
        let mut server = Self {
            pid: child.id(),
            port,
            directory,
            child,
        };
        eventually("the server answers", || server.command("PING").is_ok())?;
        // One that went into the background has another pid than what was started.
        eventually("the pid file is written", || {
            let pid = std::fs::read_to_string(&pid_file).ok();
            pid.and_then(|pid| pid.trim().parse().ok())
                .map(|pid| server.pid = pid)
                .is_some()
        })?;
        Ok(Some(server))
    }

    /// The path of its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// Sends one command and returns what is answered at once.
    pub fn command(&self, command: &str) -> anyhow::Result<String> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        if answer.starts_with('-') {
            bail!("{command}: {answer}");
        }
        Ok(answer)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()) {
            _ = kill_process(pid, Signal::KILL);
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Where Debian has it.
pub fn redis_server() -> PathBuf {
    PathBuf::from("/usr/bin/redis-server")
}

/// Waits until something is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > PATIENCE {
            bail!("waited {PATIENCE:?} in vain until {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
