//! HTTP under a web configuration, as curl sees it, and clients that hang on: they cost neither the scrapes nor the
//! probes anything.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use evictscope_testkit::agent::STATE_DIRECTORY;
use evictscope_testkit::loopback::port_for_later;
use evictscope_testkit::{process, redis};
use procfs::process::Process;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustix::process::{Pid, Resource, Rlimit, prlimit, setrlimit};
use tempfile::TempDir;

use crate::prelude::*;

/// In this time the agent looks at the file again.
const READ_AGAIN: Duration = Duration::from_secs(8);
/// How long curl waits for an answer, in seconds: only one that never comes takes this long.
const HANGS: &str = "300";
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
const UNKNOWN: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Ym9iOng=\r\n\r\n";
const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

/// Returns what `htpasswd -nbB alice secret` writes at this cost.
fn users(cost: u32) -> anyhow::Result<String> {
    let hash = bcrypt::hash_with_result("secret", cost)?.format_for_version(bcrypt::Version::TwoY);
    Ok(format!("basic_auth_users:\n  alice: {hash}\n"))
}

/// An authority that can be trusted or not.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        // By default it would have the name of what it signs, which would then look self-signed.
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, "an authority");
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    fn write(&self, directory: &Path, name: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(directory.join(format!("{name}.crt")), self.0.pem())?)
    }

    /// Writes a certificate for `subject` and its key.
    fn issue(&self, directory: &Path, name: &str, subject: &str) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![subject.to_owned()])?.signed_by(&key, &self.0)?;
        std::fs::write(directory.join(format!("{name}.crt")), certificate.pem())?;
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem())?;
        Ok(())
    }
}

/// An agent with few descriptors, which watches no server but those of this process.
struct WebAgent {
    process: Owned,
    port: u16,
    directory: TempDir,
}

impl WebAgent {
    /// Starts an agent in a directory that `prepare` fills. The configuration is `web.yml` there.
    fn start(prepare: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let (directory, port) = (tempfile::tempdir()?, port_for_later()?);
        prepare(directory.path())?;
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={DESCRIPTORS}")).arg(evictscope().get_program());
        command.args(["run", "--listen", &format!("127.0.0.1:{port}")]).arg(redis::match_private());
        let web = directory.path().join("web.yml");
        if web.exists() {
            command.arg("--web-config").arg(web);
        }
        let process = Owned::start(command.env(STATE_DIRECTORY, directory.path().join("state")))?;
        let agent = Self { process, port, directory };
        agent.says("serving http")?;
        Ok(agent)
    }

    /// Starts it with this configuration, if it is not empty, and a certificate for TLS.
    fn with(web_config: &str) -> anyhow::Result<Self> {
        Self::start(|directory| {
            Authority::new()?.issue(directory, "server", "localhost")?;
            if !web_config.is_empty() {
                std::fs::write(directory.join("web.yml"), web_config)?;
            }
            Ok(())
        })
    }

    /// Waits until it has logged this.
    fn says(&self, text: &str) -> anyhow::Result<()> {
        self.process.until(text, || Ok(self.process.log()?.contains(text).then_some(())))
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.directory.path().join("web.yml"), text)?)
    }

    /// Returns the status that curl gets for /metrics, or 0 without an answer.
    fn status(&self, scheme: &str, options: &[&str]) -> anyhow::Result<u16> {
        let output = Command::new("curl")
            .current_dir(self.directory.path())
            .args(["--silent", "--show-error", "--output", "/dev/null"])
            .args(["--max-time", HANGS, "--write-out", "%{http_code}"])
            .args(options)
            .arg(format!("{scheme}://localhost:{}/metrics", self.port))
            .output()
            .context("cannot run curl; `apt-get install curl`")?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    fn becomes(&self, status: u16, scheme: &str, options: &[&str]) -> anyhow::Result<()> {
        until_true(&format!("{scheme} {options:?}: {status}"), || Ok(self.status(scheme, options)? == status))
    }

    /// Returns a page, as curl gets it from a connection of its own.
    fn get(&self, path: &str) -> anyhow::Result<String> {
        self.get_within(HANGS, path)
    }

    fn get_within(&self, seconds: &str, path: &str) -> anyhow::Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--insecure", "--user", "alice:secret"]);
        let web = std::fs::read_to_string(self.directory.path().join("web.yml")).unwrap_or_default();
        let scheme = if web.contains(TLS) { "https" } else { "http" };
        process::answer_of(curl.args(["--max-time", seconds, &format!("{scheme}://127.0.0.1:{}{path}", self.port)]))
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

#[test]
#[ignore = "needs root and BPF"]
fn tls_and_passwords_follow_the_file() -> anyhow::Result<()> {
    let (authority, other) = (Authority::new()?, Authority::new()?);
    let users = users(10)?;
    let agent = WebAgent::start(|directory| {
        authority.write(directory, "authority")?;
        other.write(directory, "other")?;
        authority.issue(directory, "server", "localhost")?;
        let text = format!("{TLS}{users}");
        Ok(std::fs::write(directory.join("web.yml"), text)?)
    })?;
    let trusting = ["--cacert", "authority.crt"];
    let with = |more: &[&'static str]| [&trusting[..], more].concat();
    let alice = with(&["--user", "alice:secret"]);

    ensure!(agent.status("https", &alice)? == 200);
    for wrong in
        [&[][..], &["--user", "alice:Secret"], &["--user", "bob:secret"], &["--header", "Authorization: Basic !"]]
    {
        ensure!(agent.status("https", &with(wrong))? == 401, "{wrong:?}");
    }
    let untrusting = ["--cacert", "other.crt", "--user", "alice:secret"];
    ensure!(agent.status("http", &untrusting[2..])? == 0, "answers without TLS");
    ensure!(agent.status("https", &untrusting)? == 0);

    let watch = |options: &[&str]| {
        evictscope()
            .current_dir(agent.directory.path())
            .args(["watch", "--once", "--url"])
            .arg(format!("https://localhost:{}", agent.port))
            .args(options)
            .output()
    };
    std::fs::write(agent.directory.path().join("password"), "secret\n")?;
    let password = ["--user", "alice", "--password-file", "password"];
    for (options, said) in [
        (&[][..], "needs --ca FILE"),
        (&["--ca", "authority.crt"], "--password-file FILE"),
        (&[&["--ca", "other.crt"][..], &password].concat(), "invalid peer certificate"),
    ] {
        let output = watch(options)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{errors}");
        ensure!(errors.contains(said), "{errors}");
    }
    let output = watch(&[&["--ca", "authority.crt"][..], &password].concat())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");

    // A wrong file changes nothing, and is logged once.
    agent.write(&format!("{TLS}basic_auth_users:\n  alice: secret\n"))?;
    agent.says("alice: not a bcrypt hash")?;
    // It is read again in the meantime.
    std::thread::sleep(READ_AGAIN);
    let log = agent.process.log()?;
    ensure!(log.matches("stays in force").count() == 1, "{log}");
    ensure!(agent.status("https", &alice)? == 200);
    ensure!(agent.status("https", &trusting)? == 401);

    // Another certificate from another authority is used without a restart.
    agent.write(&format!("{TLS}{users}"))?;
    other.issue(agent.directory.path(), "server", "localhost")?;
    agent.becomes(200, "https", &untrusting)?;
    ensure!(agent.status("https", &alice)? == 0);

    // Without users no password is needed. Without TLS, http serves. A file without either changes nothing.
    agent.write(TLS)?;
    agent.becomes(200, "https", &["--cacert", "other.crt"])?;
    agent.write(&users)?;
    agent.becomes(200, "http", &["--user", "alice:secret"])?;
    agent.write("")?;
    agent.says("protects nothing")?;
    ensure!(agent.status("http", &[])? == 401, "answers without a password");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn clients_must_show_a_certificate_and_speak_a_new_tls() -> anyhow::Result<()> {
    let (authority, other) = (Authority::new()?, Authority::new()?);
    let agent = WebAgent::start(|directory| {
        authority.write(directory, "authority")?;
        authority.issue(directory, "server", "localhost")?;
        authority.issue(directory, "client", "prometheus")?;
        other.issue(directory, "stranger", "prometheus")?;
        let asked = "  client_ca_file: authority.crt\n  client_auth_type: RequireAndVerifyClientCert\n";
        let text = format!("{TLS}{asked}");
        Ok(std::fs::write(directory.join("web.yml"), text)?)
    })?;
    let with = |more: &[&'static str]| [&["--cacert", "authority.crt"], more].concat();
    let client = with(&["--cert", "client.crt", "--key", "client.key"]);
    let old = [&client[..], &["--tls-max", "1.2"]].concat();
    ensure!(agent.status("https", &client)? == 200);
    ensure!(agent.status("https", &old)? == 200);
    let without = agent.status("https", &with(&[]))?;
    ensure!(without == 0, "answers without a certificate");
    let stranger = with(&["--cert", "stranger.crt", "--key", "stranger.key"]);
    ensure!(agent.status("https", &stranger)? == 0, "answers a stranger");

    agent.write(&format!("{TLS}  min_version: TLS13\n"))?;
    agent.becomes(200, "https", &with(&[]))?;
    ensure!(agent.status("https", &old)? == 0, "speaks TLS 1.2");
    Ok(())
}

fn clients_that_hang_on_change_nothing(web_config: &str, sent: &str) -> anyhow::Result<()> {
    // This process holds the other ends.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    ensure!(most.is_none_or(|most| most > ALL as u64 + 100), "{most:?}");
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let agent = WebAgent::with(web_config)?;
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
        ("unknown users", &users(4)?, UNKNOWN),
    ] {
        clients_that_hang_on_change_nothing(web_config, sent).context(what)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn unknown_users_have_one_thread_for_all_their_passwords() -> anyhow::Result<()> {
    let agent = WebAgent::with(&users(4)?)?;
    agent.get("/metrics")?;
    let before = agent.own()?.stat()?.num_threads;
    let asking: anyhow::Result<Vec<_>> = (0..4).map(|_| agent.connect(&UNKNOWN.repeat(100))).collect();
    for mut stream in asking? {
        stream.set_read_timeout(Some(Duration::from_secs(HANGS.parse()?)))?;
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
    let agent = WebAgent::with("")?;
    let before = agent.limit_descriptors(3)?;
    let _clients = [agent.connect("")?, agent.connect("")?];
    ensure!(agent.get_within("1", "/metrics").is_err(), "no descriptor is missing");
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
