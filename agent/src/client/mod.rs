//! Asks a running agent over HTTP, as `watch`, `report` and `selftest` do. Needs no privilege.

pub mod reading;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use evictscope_model::answers::{
    BurstList, EvidenceAnswer, ListedBurst, RecordMade, TimelineAnswer, UnwatchedList, UnwatchedServer,
};
use evictscope_records::{Record, RecordId};
use form_urlencoded::byte_serialize;
use headers::Authorization;
use headers::authorization::Credentials as _;
use serde::de::DeserializeOwned;
use tokio_rustls::rustls::crypto::ring;
use ureq::http::{HeaderValue, Response, StatusCode, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent as Http, Body, RequestBuilder};

use self::reading::Reading;

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take to make a record: half a minute, and the reclaim of a burst that is under way.
const RECORD_PATIENCE: Duration = Duration::from_secs(150);

/// The longest record that is read, in bytes.
const LONGEST_RECORD: u64 = 64 << 20;

/// The longest list that is read, in bytes.
const LONGEST_LIST: u64 = 10 << 20;

/// The longest timeline that is read, in bytes. One of ten minutes has 1.5 MB.
const LONGEST_TIMELINE: u64 = 16 << 20;

/// The most bytes that are read of a file that a user names.
const LONGEST_FILE: u64 = 4 << 20;

/// The address of the agent, and how it lets users in (`run --web-config`).
#[derive(clap::Args)]
pub struct Access {
    /// Where the agent serves
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9739")]
    url: String,
    /// For https: certificates of the authorities that are trusted, in PEM; those of the system are in
    /// /etc/ssl/certs/ca-certificates.crt
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The user, if the agent asks for a password
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// The file with the password, if the agent asks for one
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
}

pub struct AgentClient {
    url: String,
    http: Http,
    password: Option<HeaderValue>,
}

impl AgentClient {
    /// Prepares to ask the agent that `access` names. Fails if a file cannot be read or has the wrong format.
    pub fn at(access: &Access) -> anyhow::Result<Self> {
        let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
        let tls = match &access.ca {
            Some(file) => tls.root_certs(certificates(file)?),
            None if access.url.starts_with("https:") => bail!(
                "{} needs --ca FILE, the certificates of the authorities that are trusted; those of \
                 the system are in /etc/ssl/certs/ca-certificates.crt",
                access.url
            ),
            None => tls,
        };
        let http = Http::config_builder().timeout_global(Some(PATIENCE)).tls_config(tls.build()).build();
        let password = match (&access.user, &access.password_file) {
            (Some(user), Some(file)) => {
                Some(Authorization::basic(user, read(file)?.trim_end_matches(['\r', '\n'])).0.encode())
            }
            _ => None,
        };
        Ok(Self { url: access.url.trim_end_matches('/').to_owned(), http: http.into(), password })
    }

    /// Prepares to ask an agent that serves on this loopback port, without TLS or a password.
    pub fn on_loopback(port: u16) -> anyhow::Result<Self> {
        Self::at(&Access { url: format!("http://127.0.0.1:{port}"), ca: None, user: None, password_file: None })
    }

    /// Reads its metrics. Fails if no agent answers, and says how to start one.
    pub fn reading(&self) -> anyhow::Result<Reading> {
        let reading = Reading::parse(&self.get("/metrics")?.read_to_string()?)?;
        ensure!(
            reading.is_of_evictscope,
            "{} answers, but is not an evictscope: give the agent's address with --url",
            self.url
        );
        Ok(reading)
    }

    pub fn bursts(&self) -> anyhow::Result<Vec<ListedBurst>> {
        Ok(self.json::<BurstList>("/api/v1/bursts", LONGEST_LIST)?.bursts)
    }

    pub fn unwatched(&self) -> anyhow::Result<Vec<UnwatchedServer>> {
        Ok(self.json::<UnwatchedList>("/api/v1/unwatched", LONGEST_LIST)?.unwatched)
    }

    /// Returns the last minutes of one server. Fails as [`Self::reading`] does, and if the server's evicting calls are
    /// not seen.
    pub fn timeline(&self, server: &str) -> anyhow::Result<TimelineAnswer> {
        let query: String = byte_serialize(server.as_bytes()).collect();
        self.json(&format!("/api/v1/timeline?server={query}"), LONGEST_TIMELINE)
    }

    /// Has the agent keep a record of one server now, and returns it. This takes at least half a minute, because the
    /// record includes what follows. Fails as [`Self::reading`] does, and if the agent keeps no records, with its
    /// reason.
    pub fn record_now(&self, server: &str) -> anyhow::Result<Record> {
        let query: String = byte_serialize(server.as_bytes()).collect();
        let request = self.http.post(format!("{}/api/v1/records?server={query}", self.url));
        let request = self.with_password(request).config().timeout_global(Some(RECORD_PATIENCE));
        let mut answer = self.answered(request.http_status_as_error(false).build().send_empty())?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            bail!(self.asks_for_password());
        }
        if !answer.status().is_success() {
            let why = answer.body_mut().read_to_string().unwrap_or_default();
            bail!("the agent at {} makes no record: {}", self.url, why.trim());
        }
        let made: RecordMade<RecordId> = answer.body_mut().read_json()?;
        let record: Record = self.json(&format!("/api/v1/records/{}", made.id), LONGEST_RECORD)?;
        ensure!(record.is_drawable(), "its profile has more frames than any");
        Ok(record)
    }

    /// Returns where the time and the memory of one server went, and whose requests wait. Fails as [`Self::reading`]
    /// does, and if the agent is older.
    pub fn evidence(&self, server: &str) -> anyhow::Result<EvidenceAnswer> {
        let query: String = byte_serialize(server.as_bytes()).collect();
        self.json(&format!("/api/v1/evidence?server={query}"), LONGEST_LIST)
    }

    fn json<T: DeserializeOwned>(&self, path: &str, longest: u64) -> anyhow::Result<T> {
        Ok(self.get(path)?.with_config().limit(longest).read_json()?)
    }

    fn get(&self, path: &str) -> anyhow::Result<ureq::Body> {
        Ok(self.answered(self.with_password(self.http.get(format!("{}{path}", self.url))).call())?.into_body())
    }

    fn with_password<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        if let Some(password) = &self.password { request.header(header::AUTHORIZATION, password) } else { request }
    }

    fn answered(&self, answer: Result<Response<Body>, ureq::Error>) -> anyhow::Result<Response<Body>> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(ureq::Error::StatusCode(401)) => bail!(self.asks_for_password()),
            Err(error) => Err(error).with_context(|| {
                format!(
                    "no agent answers at {}: start one with `sudo evictscope run`, or give the address of \
                     one that runs with --url (https, where it has TLS)",
                    self.url
                )
            }),
        }
    }

    fn asks_for_password(&self) -> String {
        format!("{} asks for a password, or for another one: --user NAME --password-file FILE", self.url)
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text));
    read.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text)
}

fn certificates(file: &Path) -> anyhow::Result<RootCerts> {
    let text = read(file)?;
    let mut found = Vec::new();
    for item in parse_pem(text.as_bytes()) {
        let item = item.with_context(|| format!("{} is not a PEM file", file.display()))?;
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate);
        }
    }
    let file = file.display();
    ensure!(!found.is_empty(), "{file} has no certificate in PEM");
    Ok(found.into())
}
