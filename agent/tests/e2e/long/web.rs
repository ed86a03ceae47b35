//! HTTP under a web configuration, as curl sees it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use evictscope_testkit::agent::evictscope;
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::process::Owned;
use evictscope_testkit::wait::until_true;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// In this time the agent looks at the file again.
const READ_AGAIN: Duration = Duration::from_secs(8);

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

    /// Writes its certificate.
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

struct Agent {
    process: Owned,
    port: u16,
    directory: TempDir,
}

impl Agent {
    /// Starts an agent in a directory that `prepare` fills. The configuration is `web.yml` there.
    fn start(prepare: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let (directory, port) = (tempfile::tempdir()?, free_port()?);
        prepare(directory.path())?;
        let listen = format!("127.0.0.1:{port}");
        let process = Owned::start(
            evictscope().args(["run", "--listen", &listen, "--web-config"]).arg(directory.path().join("web.yml")),
        )?;
        let agent = Self { process, port, directory };
        agent.says("serving http")?;
        Ok(agent)
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
            .args(["--max-time", "300", "--write-out", "%{http_code}"])
            .args(options)
            .arg(format!("{scheme}://localhost:{}/metrics", self.port))
            .output()
            .context("cannot run curl; `apt-get install curl`")?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    /// Waits until curl gets this status.
    fn becomes(&self, status: u16, scheme: &str, options: &[&str]) -> anyhow::Result<()> {
        until_true(&format!("{scheme} {options:?}: {status}"), || Ok(self.status(scheme, options)? == status))
    }
}

const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
/// The line that `htpasswd -nbBC 10 alice secret` writes, except for the hash.
const USERS: &str = "basic_auth_users:\n  alice: $2y$10$ALICE\n";

fn users() -> anyhow::Result<String> {
    let hash = bcrypt::hash_with_result("secret", 10)?.format_for_version(bcrypt::Version::TwoY);
    Ok(USERS.replace("$2y$10$ALICE", &hash))
}

#[test]
#[ignore = "needs root and BPF"]
fn tls_and_passwords_follow_the_file() -> anyhow::Result<()> {
    let (authority, other) = (Authority::new()?, Authority::new()?);
    let users = users()?;
    let agent = Agent::start(|directory| {
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
    let agent = Agent::start(|directory| {
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
