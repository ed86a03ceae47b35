//! HTTP clients that hang on cost neither the scrapes nor the probes anything.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use evictscope_testkit::agent::{STATE_DIRECTORY, evictscope};
use evictscope_testkit::loopback::port_for_later;
use evictscope_testkit::process::{self, Owned};
use evictscope_testkit::redis::{self, Redis};
use evictscope_testkit::wait::until;
use procfs::process::Process;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Resource, Rlimit, prlimit, setrlimit};
use tempfile::TempDir;

/// Descriptors that the agent may have.
const DESCRIPTORS: u64 = 512;
/// Clients that are there before the server starts.
const FIRST: usize = 600;
const ALL: usize = 10_000;
/// Descriptors that connections may take: 64 that have sent no request, 64 that have, and two that are being closed.
const CONNECTIONS: usize = 130;
/// A request that is not complete.
const HALF: &str = "GET /metrics HTTP/1.1\r\nHost: loc";
/// What a page of another site, whose name points to the agent, asks for. It does not read the answer.
const REBOUND: &str = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
/// What an unknown user asks for.
const UNKNOWN: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Ym9iOng=\r\n\r\n";
const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
/// How long curl waits for an answer: only one that never comes takes this long.
const HANGS: Duration = Duration::from_secs(300);

/// An agent with few descriptors, which watches no server but its own.
struct Agent {
    process: Owned,
    /// `http` or `https`.
    scheme: &'static str,
    port: u16,
    _directory: TempDir,
}

impl Agent {
    /// Starts it with this web configuration.
    fn start(web_config: &str) -> anyhow::Result<Self> {
        let (directory, port) = (tempfile::tempdir()?, port_for_later()?);
        let path = |name| directory.path().join(name);
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec!["localhost".to_owned()])?;
        std::fs::write(path("server.crt"), params.self_signed(&key)?.pem())?;
        std::fs::write(path("server.key"), key.serialize_pem())?;
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nofile={DESCRIPTORS}"))
            .arg(evictscope().get_program())
            .env(STATE_DIRECTORY, path("state"))
            .args(["run", "--listen", &format!("127.0.0.1:{port}")])
            .arg(redis::match_private());
        if !web_config.is_empty() {
            std::fs::write(path("web.yml"), web_config)?;
            command.arg("--web-config").arg(path("web.yml"));
        }
        let agent = Self {
            process: Owned::start(&mut command)?,
            scheme: if web_config == TLS { "https" } else { "http" },
            port,
            _directory: directory,
        };
        agent.process.until("the agent is ready", || Ok(agent.get("/-/ready").is_ok().then_some(())))?;
        Ok(agent)
    }

    /// Returns a page, as curl gets it from a connection of its own.
    fn get(&self, path: &str) -> anyhow::Result<String> {
        self.get_within(HANGS, path)
    }

    fn get_within(&self, limit: Duration, path: &str) -> anyhow::Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--insecure", "--user", "alice:secret"]);
        curl.args(["--max-time", &limit.as_secs_f64().to_string()]);
        process::answer_of(curl.arg(format!("{}://127.0.0.1:{}{path}", self.scheme, self.port)))
    }

    /// Connects, and sends this, unless the connection is closed already.
    fn connect(&self, sent: &str) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        _ = stream.write_all(sent.as_bytes());
        Ok(stream)
    }

    /// Returns the lines of its log about HTTP clients.
    fn said_about_clients(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.process.log()?.lines().filter(|line| line.contains("HTTP")).map(str::to_owned).collect())
    }

    fn own(&self) -> anyhow::Result<Process> {
        Ok(Process::new(self.process.pid().try_into()?)?)
    }

    /// Sets the most descriptors that it may have; returns what was set before.
    fn limit_descriptors(&self, most: u64) -> anyhow::Result<Rlimit> {
        let pid = Pid::from_raw(self.process.pid().try_into()?);
        Ok(prlimit(pid, Resource::Nofile, Rlimit { current: Some(most), maximum: Some(DESCRIPTORS) })?)
    }
}

fn password() -> anyhow::Result<String> {
    let hash = bcrypt::hash("secret", 4)?;
    Ok(format!("basic_auth_users:\n  alice: {hash}\n"))
}

fn clients_that_hang_on_change_nothing(web_config: &str, sent: &str) -> anyhow::Result<()> {
    // This process holds the other ends.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    ensure!(most.is_none_or(|most| most > ALL as u64 + 100), "{most:?}");
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let agent = Agent::start(web_config)?;
    let before = agent.own()?.fd_count()?;
    let mut hanging = Vec::new();
    while hanging.len() < FIRST {
        hanging.push(agent.connect(sent)?);
    }
    until("a scrape", || Ok(agent.get("/metrics").ok()))?;

    let redis = Redis::private(&[])?;
    let label = format!("server=\"{}\"", redis.name());
    until("the server is found", || Ok(agent.get("/metrics").is_ok_and(|page| page.contains(&label)).then_some(())))?;
    let watching = agent.own()?.fd_count()?;

    std::thread::scope(|scope| {
        let agent = &agent;
        let more = scope.spawn(move || -> anyhow::Result<_> {
            while hanging.len() < ALL {
                hanging.push(agent.connect(sent)?);
            }
            Ok(hanging)
        });
        let mut scrapes = 0;
        while !more.is_finished() || scrapes == 0 {
            // A client that has not asked yet may have to make room for others, even the scraper.
            until("a scrape", || Ok(agent.get("/metrics").ok()))?;
            scrapes += 1;
        }
        let _hanging = more.join().map_err(|_| anyhow::anyhow!("connecting panicked"))??;
        println!("{scrapes} scrapes while they came");
        let open = agent.own()?.fd_count()?;
        ensure!(open <= before.max(watching) + CONNECTIONS, "{open} descriptors");
        until("a scrape", || Ok(agent.get("/metrics").ok()))?;
        until("it is healthy", || Ok(agent.get("/-/healthy").ok()))?;
        anyhow::Ok(())
    })?;
    let lines = agent.said_about_clients()?;
    ensure!((1..=2).contains(&lines.len()), "{lines:#?}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn ten_thousand_clients_that_hang_on_change_nothing() -> anyhow::Result<()> {
    for (what, web_config, sent) in [
        ("silent ones", "", ""),
        ("half a header", "", HALF),
        ("of another site, and do not read", "", REBOUND),
        ("that do not agree on TLS", TLS, ""),
        ("unknown users", &password()?, UNKNOWN),
    ] {
        clients_that_hang_on_change_nothing(web_config, sent).context(what)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn unknown_users_have_one_thread_for_all_their_passwords() -> anyhow::Result<()> {
    let agent = Agent::start(&password()?)?;
    agent.get("/metrics")?;
    let before = agent.own()?.stat()?.num_threads;
    let asking: anyhow::Result<Vec<_>> = (0..4).map(|_| agent.connect(&UNKNOWN.repeat(100))).collect();
    for mut stream in asking? {
        stream.set_read_timeout(Some(HANGS))?;
        let (mut answers, mut buffer) = (String::new(), [0; 1 << 16]);
        while answers.matches("HTTP/1.1 401 Unauthorized").count() < 100 {
            let length = stream.read(&mut buffer)?;
            ensure!(length > 0, "closed after {answers}");
            answers += std::str::from_utf8(&buffer[..length])?;
        }
    }
    // A thread for each would still be there: the runtime keeps idle ones for ten seconds.
    let after = agent.own()?.stat()?.num_threads;
    ensure!(after <= before, "{before} threads before, {after} after");
    agent.get("/metrics")?;
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn without_descriptors_it_says_so_once_and_waits() -> anyhow::Result<()> {
    let agent = Agent::start("")?;
    let before = agent.limit_descriptors(3)?;
    let _clients = [agent.connect("")?, agent.connect("")?];
    ensure!(agent.get_within(Duration::from_secs(1), "/metrics").is_err(), "no descriptor is missing");
    let lines = until("it says so", || {
        let lines = agent.said_about_clients()?;
        Ok((!lines.is_empty()).then_some(lines))
    })?;
    ensure!(lines.len() == 1, "{lines:#?}");
    ensure!(lines[0].contains("raise LimitNOFILE="), "{lines:#?}");

    agent.limit_descriptors(before.current.context("no limit")?)?;
    until("it answers again", || Ok(agent.get("/metrics").ok()))?;
    Ok(())
}
