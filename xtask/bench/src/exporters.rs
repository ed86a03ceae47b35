//! The exporters that are scraped: the agent, and Debian's `prometheus-redis-exporter`, which one would run
//! otherwise. That is one process that asks a server for INFO when it is scraped for it.

use std::{
    io::Read as _,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::{owned::Owned, port::free_port, redis::Redis};
use flate2::read::MultiGzDecoder;

/// The Debian package, and its program.
const REDIS_EXPORTER: &str = "prometheus-redis-exporter";
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
    /// Returns the agent.
    pub fn agent(pid: u32, url: String) -> Self {
        Self::new(pid, vec![url])
    }

    /// Returns redis_exporter, asked for all these servers.
    pub fn redis_exporter(running: &RedisExporter, servers: &[Redis]) -> Self {
        let url = |server: &Redis| {
            let base = &running.base;
            format!("{base}/scrape?target=redis://127.0.0.1:{}", server.port())
        };
        let urls = servers.iter().map(url).collect();
        Self::new(running.process.pid(), urls)
    }

    fn new(pid: u32, urls: Vec<String>) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            // A proxy that the environment names cannot reach the loopback interface.
            .proxy(None)
            .build();
        Self {
            pid,
            urls,
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
                // As Prometheus asks.
                .header("Accept-Encoding", "gzip");
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
    /// Returns the text.
    pub fn text(&self) -> Result<String> {
        let mut text = String::new();
        let read = match self.encoding.as_deref() {
            None => (&*self.body).read_to_string(&mut text),
            Some("gzip") => MultiGzDecoder::new(&*self.body).read_to_string(&mut text),
            Some(other) => bail!("the answer is compressed, by {other}"),
        };
        read.context("the answer is not in the text format")?;
        Ok(text)
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
        let home = Exporter::new(process.pid(), vec![base.clone()]);
        process.until("it answers", || Ok(home.scrape().ok()))?;
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
