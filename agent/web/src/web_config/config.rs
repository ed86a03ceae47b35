//! The web configuration in force: reads the files, and follows their changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use evictscope_host::read_regular;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};

use super::host_names::HostNames;
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
    /// Reads the file at `path`, and the files that it names. The error says which file cannot be read or used, and
    /// why.
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
                Err(error) => return tracing::error!("the web configuration is no longer followed: {error}"),
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
            named.extend(tls.files().map(|file| beside(path, file)).map(|file| (file.clone(), content(&file))));
        }
        Self { config, named }
    }

    fn protection(&self, path: &Path) -> anyhow::Result<Protection> {
        let shown = format!("the web configuration {}", path.display());
        let spec = Spec::parse(readable(path, &self.config)?).context(shown.clone())?;
        let demanded = spec.tls_server_config.as_ref();
        let tls = demanded.map(|tls| {
            acceptor(tls, |file| self.named(&beside(path, file))).with_context(|| format!("{shown}, tls_server_config"))
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

    fn named(&self, file: &Path) -> anyhow::Result<&[u8]> {
        readable(file, self.named.get(file).context("a file was not read")?)
    }
}

/// Resolves a path in a file: a relative one starts at the file's directory.
fn beside(file: &Path, named: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(named)
}

fn readable<'a>(path: &Path, content: &'a Content) -> anyhow::Result<&'a [u8]> {
    content.as_deref().map_err(|why| anyhow!("cannot read {}: {why}", path.display()))
}

/// Returns an acceptor as `spec` says; `read` returns the content of a file that it names.
pub fn acceptor<'a>(spec: &TlsSpec, read: impl Fn(&Path) -> anyhow::Result<&'a [u8]>) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(ring::default_provider());
    let versions = match spec.min_version {
        MinVersion::Tls12 => &[&version::TLS13, &version::TLS12][..],
        MinVersion::Tls13 => &[&version::TLS13],
    };
    let chain = certificates(&spec.cert_file, read(&spec.cert_file)?)?;
    let key = PrivateKeyDer::from_pem_slice(read(&spec.key_file)?)
        .with_context(|| about(&spec.key_file, "is not a private key in PEM"))?;
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions)?;
    let builder = match verifier(spec, read, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config =
        builder.with_single_cert(chain, key).with_context(|| about(&spec.cert_file, "does not match key_file"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns the verifier of clients' certificates; `None` if clients need no certificate.
fn verifier<'a>(
    spec: &TlsSpec,
    read: impl Fn(&Path) -> anyhow::Result<&'a [u8]>,
    provider: Arc<tokio_rustls::rustls::crypto::CryptoProvider>,
) -> anyhow::Result<Option<Arc<dyn ClientCertVerifier>>> {
    let file = match (spec.client_auth_type, &spec.client_ca_file) {
        (ClientAuth::NoClientCert, None) => return Ok(None),
        (ClientAuth::NoClientCert, Some(_)) => bail!(
            "client_ca_file has no effect without client_auth_type: add client_auth_type: RequireAndVerifyClientCert"
        ),
        (_, None) => bail!("client_auth_type needs client_ca_file"),
        (_, Some(file)) => file,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, read(file)?)? {
        roots.add(certificate).with_context(|| about(file, "has a certificate that cannot be used"))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match spec.client_auth_type {
        ClientAuth::VerifyClientCertIfGiven => builder.allow_unauthenticated(),
        _ => builder,
    };
    Ok(Some(builder.build().with_context(|| about(file, "cannot be used"))?))
}

/// Reads the certificates of a file; at least one.
fn certificates(file: &Path, content: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(content).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.with_context(|| about(file, "is no certificate in PEM"))?;
    ensure!(!certificates.is_empty(), about(file, "has no certificate in PEM"));
    Ok(certificates)
}

fn about(file: &Path, what: &str) -> String {
    format!("{} {what}", file.display())
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub tls_server_config: Option<TlsSpec>,
    /// Passwords' bcrypt hashes, by user.
    pub basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// The server's certificate and the intermediate ones, PEM.
    pub cert_file: PathBuf,
    /// Its private key, PEM.
    pub key_file: PathBuf,
    #[serde(default)]
    pub client_auth_type: ClientAuth,
    /// The authorities of clients' certificates, PEM.
    pub client_ca_file: Option<PathBuf>,
    /// The oldest version of TLS that is spoken.
    #[serde(default)]
    pub min_version: MinVersion,
}

/// Whether clients have to show a certificate, in the words of Go's `crypto/tls`. Without those that ask for one that
/// is not verified: it protects nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ClientAuth {
    #[default]
    NoClientCert,
    /// They need none, but a wrong one is refused.
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum MinVersion {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

impl Spec {
    /// Reads YAML; an empty file asks for nothing. The error says what is wrong, and in which line, but not the line
    /// itself, which may be a secret.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(text)?;
        let options = serde_saphyr::options! { with_snippet: false };
        let spec: Option<Self> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(spec.unwrap_or_default())
    }
}

impl TlsSpec {
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.cert_file, &self.key_file].into_iter().chain(&self.client_ca_file).map(PathBuf::as_path)
    }
}
