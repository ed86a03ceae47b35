//! Those who are scraped: the agent, and Debian's `prometheus-redis-exporter`, which one would run
//! otherwise: one process that asks each server by INFO when it is scraped for it.

use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::debian;
use tempfile::NamedTempFile;

use crate::{
    owned::{self, Owned},
    redis::{Server, free_port},
};

/// The Debian package, and its program.
const REDIS_EXPORTER: &str = "prometheus-redis-exporter";
/// How long it may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What Prometheus 2.42 accepts.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,\
                      application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// What is to be got from an exporter in one scrape.
pub struct Exporter {
    /// Its process.
    pub pid: u32,
    /// One after the other.
    urls: Vec<String>,
    accept_encoding: &'static str,
    http: ureq::Agent,
}

/// What an exporter answered in one scrape.
pub struct Answer {
    /// How long it took to get it, in seconds.
    pub seconds: f64,
    /// As it came over the connection.
    pub body: Vec<u8>,
    /// How that is compressed, if it is.
    pub encoding: Option<String>,
}

impl Exporter {
    /// The agent, asked as Prometheus does, which takes compressed answers.
    pub fn agent(pid: u32, url: String) -> Self {
        Self::new(pid, vec![url], "gzip")
    }

    /// redis_exporter, asked for all these servers, and not to compress, as the agent does not either.
    pub fn redis_exporter(running: &RedisExporter, servers: &[Server]) -> Self {
        let url = |server: &Server| {
            let base = &running.base;
            format!("{base}/scrape?target=redis://127.0.0.1:{}", server.port())
        };
        let urls = servers.iter().map(url).collect();
        Self::new(running.process.pid(), urls, "identity")
    }

    fn new(pid: u32, urls: Vec<String>, accept_encoding: &'static str) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            // Whatever proxy the environment names is not for the loopback interface.
            .proxy(None)
            .build();
        Self {
            pid,
            urls,
            accept_encoding,
            http: config.new_agent(),
        }
    }

    /// Gets everything, over a connection that stays open, as Prometheus's does.
    pub fn scrape(&self) -> Result<Answer> {
        let begun = Instant::now();
        let (mut body, mut encoding) = (Vec::new(), None);
        for url in &self.urls {
            let request = (self.http.get(url))
                .header("Accept", ACCEPT)
                .header("Accept-Encoding", self.accept_encoding);
            let mut answer = request
                .call()
                .with_context(|| format!("cannot get {url}"))?;
            encoding = (answer.headers().get("Content-Encoding"))
                .and_then(|encoding| encoding.to_str().ok())
                .map(str::to_owned);
            let part = answer.body_mut().read_to_vec();
            body.extend(part.with_context(|| format!("cannot get {url}"))?);
        }
        Ok(Answer {
            seconds: begun.elapsed().as_secs_f64(),
            body,
            encoding,
        })
    }
}

impl Answer {
    /// The text; only an answer that is not compressed is read.
    pub fn text(&self) -> Result<&str> {
        ensure!(
            self.encoding.is_none(),
            "the answer is compressed ({}), so its series cannot be counted",
            self.encoding.as_deref().unwrap_or_default()
        );
        str::from_utf8(&self.body).context("the answer is not in the text format")
    }
}

/// A running redis_exporter; dropping it ends it.
pub struct RedisExporter {
    process: Owned,
    log: NamedTempFile,
    base: String,
}

impl RedisExporter {
    /// Starts it on a free loopback port.
    pub fn start() -> Result<Self> {
        let log = NamedTempFile::new().context("cannot make a temporary file")?;
        let output = log.reopen().context("cannot open a temporary file")?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(program()?);
        command
            .args(["-web.listen-address", &address])
            // It would watch a server of its own otherwise.
            .args(["-redis.addr", ""])
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut exporter = Self {
            process: Owned::start(&mut command)?,
            log,
            base: format!("http://{address}"),
        };
        exporter.wait_until_it_answers()?;
        Ok(exporter)
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let home = Exporter::new(self.process.pid(), vec![self.base.clone()], "identity");
        let started = Instant::now();
        while started.elapsed() < START_TIMEOUT {
            if let Some(status) = self.process.ended() {
                let log = owned::log_text(self.log.path());
                bail!("{REDIS_EXPORTER} ended ({status}){log}");
            }
            if home.scrape().is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("{REDIS_EXPORTER} does not answer after {START_TIMEOUT:?}")
    }
}

/// Installs what is missing.
pub fn provide() -> Result<()> {
    if program().is_ok() {
        return Ok(());
    }
    let package = REDIS_EXPORTER.to_owned();
    debian::installable().with_context(|| format!("install {package} to compare with"))?;
    debian::install(&[package])
}

fn program() -> Result<PathBuf> {
    which::which(REDIS_EXPORTER).with_context(|| format!("there is no {REDIS_EXPORTER}"))
}
