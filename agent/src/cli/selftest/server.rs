//! The throw-away server, what it says about itself, and a load that makes it evict all the time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};

use super::child::Tied;

/// The programs to look for in `PATH`, in this order.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
/// Its limit, MiB: full after some tenths of a second, and small compared to the memory of any host.
const LIMIT_MIB: u32 = 32;
/// How many keys it looks at to evict one. With 64 instead of 5 an eviction takes several times as long as the `SET`
/// that causes it, so evictions take most of the main thread's time on any machine.
const SAMPLES: u32 = 64;
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer to `INFO` that is read, in bytes. Real answers have some thousands.
const LONGEST_INFO: usize = 1 << 20;
/// While one thread reads its answers, the server works for the others.
const THREADS: u32 = 4;
/// Connections of each thread. A server that evicts takes more than a tenth of a second to serve all of them.
const CONNECTIONS: u32 = 200;
/// How many commands are sent on each connection before any answer is read.
const AT_ONCE: u32 = 50;
/// Bytes of a value: small, so that evicting takes longer than reading it.
const VALUE: usize = 256;
/// How long an answer to the load may take.
const LOAD_PATIENCE: Duration = Duration::from_secs(10);

/// Returns the server's program: `named`, or the first in `PATH`. Fails if there is none, and says what to do.
pub fn find(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        ensure!(path.is_file(), "{} is not a file", path.display());
        return Ok(std::path::absolute(path)?);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut candidates = PROGRAMS.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    candidates.find(|path| path.is_file()).context(
        "neither redis-server nor valkey-server is in PATH: install one (on Debian: apt install redis-server), or name it \
         with --server FILE",
    )
}

/// A throw-away server, which is killed when this is dropped.
pub struct ThrowAwayServer {
    process: Tied,
    port: u16,
}

impl ThrowAwayServer {
    /// Starts `program` on a free loopback port, as `name`. It saves nothing.
    pub fn start(program: &Path, name: &str, directory: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let (number, limit, samples) = (port.to_string(), format!("{LIMIT_MIB}mb"), SAMPLES.to_string());
        let options = [
            ["--port", &number],
            ["--bind", "127.0.0.1"],
            ["--daemonize", "no"],
            ["--save", ""],
            ["--appendonly", "no"],
            ["--maxmemory", &limit],
            ["--maxmemory-policy", "allkeys-lru"],
            ["--maxmemory-samples", &samples],
        ];
        Ok(Self { process: Tied::start(name, program, options.as_flattened(), directory)?, port })
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub fn label(&self) -> String {
        self.port.to_string()
    }

    /// Describes it, once it answers.
    pub fn describe(&mut self) -> anyhow::Result<Option<String>> {
        self.process.must_run()?;
        let Ok(info) = self.info() else { return Ok(None) };
        // Another program may have taken the port meanwhile.
        if field(&info, "process_id") != Some(&self.process.pid().to_string()) {
            return Ok(None);
        }
        let version = field(&info, "valkey_version").or(field(&info, "redis_version"));
        let (version, port, pid) = (version.unwrap_or("unknown"), self.port, self.process.pid());
        Ok(Some(format!("version {version}, on 127.0.0.1:{port}, pid {pid}, with a limit of {LIMIT_MIB} MiB")))
    }

    pub fn evicted_keys(&mut self) -> anyhow::Result<u64> {
        self.process.must_run()?;
        let info = self.info()?;
        field(&info, "evicted_keys")
            .context("INFO has no evicted_keys")?
            .parse()
            .context("evicted_keys is not a number")
    }

    fn info(&self) -> anyhow::Result<String> {
        let mut connection = connect(&self.address(), PATIENCE)?;
        connection.write_all(b"INFO\r\n")?;
        let mut answer = BufReader::new(connection);
        let mut length = String::new();
        answer.by_ref().take(32).read_line(&mut length)?;
        let length: usize = length.trim_end().strip_prefix('$').context("INFO was not answered")?.parse()?;
        ensure!(length <= LONGEST_INFO, "INFO has {length} bytes");
        let mut text = vec![0; length];
        answer.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Connects. Whatever then takes longer than this fails.
fn connect(server: &SocketAddr, patience: Duration) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(server, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no loopback port is free")?.local_addr()?.port())
}

/// Threads that write keys.
pub struct WriteLoad(Vec<JoinHandle<anyhow::Result<()>>>);

impl WriteLoad {
    /// Starts writing keys that are new each time, for `lasting`. It ends by itself.
    pub fn start(server: SocketAddr, lasting: Duration) -> anyhow::Result<Self> {
        let until = Instant::now() + lasting;
        let start =
            |number| thread::Builder::new().name("load".to_owned()).spawn(move || write_keys(server, number, until));
        Ok(Self((0..THREADS).map(start).collect::<Result<_, _>>().context("cannot start a thread")?))
    }

    pub fn has_ended(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Waits until it has ended. Fails if the server did not answer each command with `OK`.
    pub fn end(self) -> anyhow::Result<()> {
        for thread in self.0 {
            thread.join().map_err(|_| anyhow!("the load panicked; please report this"))??;
        }
        Ok(())
    }
}

fn write_keys(server: SocketAddr, thread: u32, until: Instant) -> anyhow::Result<()> {
    let connections = (0..CONNECTIONS).map(|_| connect(&server, LOAD_PATIENCE));
    let mut streams = connections.collect::<anyhow::Result<Vec<_>>>()?;
    let value = "x".repeat(VALUE);
    let right = b"+OK\r\n".repeat(AT_ONCE as usize);
    let mut answers = vec![0; right.len()];
    let mut next = 0_u64;
    while Instant::now() < until {
        for stream in &mut streams {
            let mut commands = Vec::new();
            for _ in 0..AT_ONCE {
                let key = format!("{thread}:{next:012}");
                let length = key.len();
                write!(commands, "*3\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n${VALUE}\r\n{value}\r\n")?;
                next += 1;
            }
            stream.write_all(&commands)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut answers)?;
            ensure!(answers == right, "the server answered a SET with an error");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_of_info_is_found_by_its_whole_name() {
        let info = "# Stats\r\nexpired_keys:1\r\nevicted_keys_x:2\r\nevicted_keys:3\r\n";
        assert_eq!(field(info, "evicted_keys"), Some("3"));
        assert_eq!(field(info, "evicted"), None);
    }
}
