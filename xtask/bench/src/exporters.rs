//! The exporters that are scraped: the agent, and Debian's `prometheus-redis-exporter`, which one would run
//! otherwise. That is one process that asks a server for INFO when it is scraped for it.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{owned::Owned, port::free_port, redis::Redis};

/// The Debian package, and its program.
const REDIS_EXPORTER: &str = "prometheus-redis-exporter";
/// How long it may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The `Accept` header of Prometheus 2.42.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,\
                      application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// An exporter, and what one scrape asks it for.
pub struct Exporter {
    /// Its process.
    pub pid: u32,
    /// One after the other.
    urls: Vec<String>,
    accept_encoding: &'static str,
    http: ureq::Agent,
}

/// An exporter's answer to one scrape.
pub struct Answer {
    /// How long it took to get it, in seconds.
    pub seconds: f64,
    /// As it came over the connection.
    pub body: Vec<u8>,
    /// How the body is compressed, if it is.
    pub encoding: Option<String>,
}

impl Exporter {
    /// Returns the agent, asked as Prometheus asks, which accepts compressed answers.
    pub fn agent(pid: u32, url: String) -> Self {
        Self::new(pid, vec![url], "gzip")
    }

    /// Returns redis_exporter, asked for all these servers without compression, which the agent has not
    /// either.
    pub fn redis_exporter(running: &RedisExporter, servers: &[Redis]) -> Self {
        let url = |server: &Redis| {
            let base = &running.base;
            format!("{base}/scrape?target=redis://127.0.0.1:{}", server.port())
        };
        let urls = servers.iter().map(url).collect();
        Self::new(running.process.pid(), urls, "identity")
    }

    fn new(pid: u32, urls: Vec<String>, accept_encoding: &'static str) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            // A proxy that the environment names cannot reach the loopback interface.
            .proxy(None)
            .build();
        Self {
            pid,
            urls,
            accept_encoding,
            http: config.new_agent(),
        }
    }

    /// Gets everything over one connection that stays open, as Prometheus does.
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
    /// Returns the text of an answer that is not compressed.
    pub fn text(&self) -> Result<&str> {
        ensure!(
            self.encoding.is_none(),
            "the answer is compressed ({}), so its series cannot be counted",
            self.encoding.as_deref().unwrap_or_default()
        );
        str::from_utf8(&self.body).context("the answer is not in the text format")
    }
}

/// A running redis_exporter, which is killed when this is dropped.
pub struct RedisExporter {
    process: Owned,
    base: String,
}

impl RedisExporter {
    /// Starts it on a free loopback port.
    pub fn start() -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let process = Owned::start(
            Command::new(REDIS_EXPORTER)
                .args(["-web.listen-address", &address])
                // Otherwise it would also watch a server of its own.
                .args(["-redis.addr", ""]),
        )?;
        let base = format!("http://{address}");
        let home = Exporter::new(process.pid(), vec![base.clone()], "identity");
        process.until(START_TIMEOUT, "it answers", || Ok(home.scrape().ok()))?;
        Ok(Self { process, base })
    }
}

/// Returns the package of redis_exporter where it is missing.
pub fn missing_packages() -> Vec<String> {
    match which::which(REDIS_EXPORTER) {
        Ok(_) => Vec::new(),
        Err(_) => vec![REDIS_EXPORTER.to_owned()],
    }
}
