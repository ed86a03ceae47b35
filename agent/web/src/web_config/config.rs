//! The web configuration in force: reads the files, and follows their changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use evictscope_host::read_regular;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;

use super::host_names::HostNames;
use super::spec::{ClientAuth, Spec};
use super::tls;
use super::users::Users;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// The most bytes of a file. The authorities of a distribution have 250,000.
const MOST_BYTES: u64 = 4 << 20;

/// What protects HTTP at one time.
#[derive(Default)]
pub(super) struct Protection {
    pub tls: Option<TlsAcceptor>,
    /// Clients must have a certificate.
    pub demands_certificate: bool,
    pub users: Option<Users>,
    /// The names by which clients may ask, if there are neither TLS nor users.
    pub host_names: Option<HostNames>,
}

impl Protection {
    /// Returns whether it knows who asks, by a password or a certificate.
    pub fn tells_clients(&self) -> bool {
        self.users.is_some() || self.demands_certificate
    }
}

/// What protects HTTP now. Clones share it.
#[derive(Clone)]
pub struct Web(Arc<watch::Sender<Arc<Protection>>>);

impl Web {
    /// Returns no protection: admits everyone who can reach the agent and asks for it by an address, `localhost`, the
    /// host's own name, or one of `host_names`.
    pub fn open(host_names: Vec<String>) -> Self {
        Self::new(Protection { host_names: Some(HostNames::new(host_names)), ..Protection::default() })
    }

    fn new(protection: Protection) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(protection))))
    }

    pub(super) fn now(&self) -> Arc<Protection> {
        self.0.borrow().clone()
    }

    /// Returns the acceptor of TLS connections, if TLS is in force now.
    pub fn tls(&self) -> Option<TlsAcceptor> {
        self.now().tls.clone()
    }
}

/// A file that says how HTTP is protected.
pub struct WebConfig {
    path: PathBuf,
    /// The files at the last look.
    seen: Sources,
    /// The files that were last applied or refused.
    judged: Sources,
    web: Web,
}

impl WebConfig {
    /// Reads the file at `path`, and the files that it names.
    ///
    /// # Errors
    ///
    /// Says which file cannot be read or used, and why.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let read = Sources::read(path);
        let protection = read.protection(path)?;
        Ok(Self { path: path.to_owned(), seen: read.clone(), judged: read, web: Web::new(protection) })
    }

    /// Returns the protection for the HTTP server, which changes with the file while [`Self::follow`] runs.
    pub fn web(&self) -> Web {
        self.web.clone()
    }

    /// Returns whether it asks for TLS now.
    pub fn has_tls(&self) -> bool {
        self.web.tls().is_some()
    }

    /// Follows changes of the files forever. HTTP does not wait for their file system.
    pub async fn follow(mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = spawn_blocking(move || {
                self.look();
                self
            });
            match looked.await {
                Ok(looked) => self = looked,
                Err(error) => {
                    return tracing::error!("the web configuration is no longer followed: {error}");
                }
            }
        }
    }

    /// Applies files that have changed and then stayed the same, if they can be used.
    pub(super) fn look(&mut self) {
        let before = std::mem::replace(&mut self.seen, Sources::read(&self.path));
        if self.seen != before || self.seen == self.judged {
            return;
        }
        self.judged = self.seen.clone();
        match self.judged.protection(&self.path) {
            Ok(protection) => {
                self.web.0.send_replace(Arc::new(protection));
                tracing::info!("{} has changed and is in force", self.path.display());
            }
            Err(error) => tracing::error!("{error:#}; what was in force before stays in force"),
        }
    }
}

/// What a protection is made from: the content of the files, or why they cannot be read. Compared instead of
/// modification times, which are the same for two changes in quick succession.
#[derive(Clone, PartialEq)]
struct Sources {
    config: Content,
    /// The files that the configuration names.
    named: BTreeMap<PathBuf, Content>,
}

type Content = Result<Vec<u8>, String>;

impl Sources {
    fn read(path: &Path) -> Self {
        let content = |path: &Path| read_regular(path, MOST_BYTES).map_err(|error| error.to_string());
        let config: Content = content(path);
        let spec = config.as_ref().ok().and_then(|text| Spec::parse(text).ok());
        let mut named = BTreeMap::new();
        if let Some(tls) = spec.and_then(|spec| spec.tls_server_config) {
            let files = tls.files().map(|file| beside(path, file));
            named.extend(files.map(|file| (file.clone(), content(&file))));
        }
        Self { config, named }
    }

    fn protection(&self, path: &Path) -> anyhow::Result<Protection> {
        let shown = format!("the web configuration {}", path.display());
        let spec = Spec::parse(readable(path, &self.config)?).context(shown.clone())?;
        let demanded = spec.tls_server_config.as_ref();
        let tls = demanded.map(|tls| {
            let acceptor = tls::acceptor(tls, |file| self.named(&beside(path, file)));
            acceptor.with_context(|| format!("{shown}, tls_server_config"))
        });
        let tls = tls.transpose()?;
        let users = Users::new(spec.basic_auth_users.unwrap_or_default())
            .map_err(|why| anyhow!("{shown}, basic_auth_users, {why}"))?;
        // A file that was emptied by mistake must not open everything.
        ensure!(
            tls.is_some() || users.is_some(),
            "{shown} protects nothing: it has neither tls_server_config nor basic_auth_users. To serve everyone, run without \
             web-config"
        );
        let asked = demanded.map(|tls| tls.client_auth_type);
        Ok(Protection {
            tls,
            demands_certificate: asked == Some(ClientAuth::RequireAndVerifyClientCert),
            users,
            host_names: None,
        })
    }

    /// Returns the content of a file that the configuration names.
    fn named(&self, file: &Path) -> anyhow::Result<&[u8]> {
        let content = self.named.get(file).context("a file was not read")?;
        readable(file, content)
    }
}

/// Resolves a path in a file: a relative one starts at the file's directory.
fn beside(file: &Path, named: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(named)
}

fn readable<'a>(path: &Path, content: &'a Content) -> anyhow::Result<&'a [u8]> {
    let content = content.as_deref();
    content.map_err(|why| anyhow!("cannot read {}: {why}", path.display()))
}
