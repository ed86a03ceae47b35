//! The format of the web configuration, as far as it is supported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The whole file.
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
    /// Whether clients have to show a certificate.
    #[serde(default)]
    pub client_auth_type: ClientAuth,
    /// The authorities of clients' certificates, PEM.
    pub client_ca_file: Option<PathBuf>,
    /// The oldest version of TLS that is spoken.
    #[serde(default)]
    pub min_version: MinVersion,
}

/// Whether clients have to show a certificate, in the words of Go's `crypto/tls`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ClientAuth {
    #[default]
    NoClientCert,
    /// Asked for and not verified: refused, because it protects nothing.
    RequestClientCert,
    /// Required and not verified: refused, because it protects nothing.
    RequireAnyClientCert,
    /// They need none, but a wrong one is refused.
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

/// The oldest version of TLS.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum MinVersion {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

impl Spec {
    /// Reads YAML; an empty file asks for nothing.
    ///
    /// # Errors
    ///
    /// Says what is wrong, and in which line, but not the line itself, which may be a secret.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(text)?;
        let options = serde_saphyr::options! { with_snippet: false };
        let spec: Option<Self> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(spec.unwrap_or_default())
    }
}

impl TlsSpec {
    /// Returns all files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let own = [&self.cert_file, &self.key_file].into_iter();
        own.chain(&self.client_ca_file).map(PathBuf::as_path)
    }
}
