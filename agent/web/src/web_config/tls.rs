//! Makes an acceptor of TLS connections from the web configuration.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};

use super::error::WebConfigError;
use super::spec::{ClientAuth, MinVersion, TlsSpec};

/// Why the settings of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] WebConfigError),
    /// A setting, or the content of a file, is wrong.
    #[error("{0}")]
    Unusable(String),
}

/// Accepts connections as `spec` says; `read` returns the content of a file that it names.
pub fn acceptor<'a>(
    spec: &TlsSpec,
    read: impl Fn(&Path) -> Result<&'a [u8], WebConfigError>,
) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let versions = match spec.min_version {
        MinVersion::Tls12 => &[&version::TLS13, &version::TLS12][..],
        MinVersion::Tls13 => &[&version::TLS13],
    };
    let chain = certificates(&spec.cert_file, read(&spec.cert_file)?)?;
    let key = PrivateKeyDer::from_pem_slice(read(&spec.key_file)?)
        .map_err(|error| unusable(&spec.key_file, "is no private key in PEM", error))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Unusable(error.to_string()))?;
    let builder = match verifier(spec, read, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&spec.cert_file, "does not go with key_file", error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns the verifier of clients' certificates; `None` if clients need no certificate.
fn verifier<'a>(
    spec: &TlsSpec,
    read: impl Fn(&Path) -> Result<&'a [u8], WebConfigError>,
    provider: Arc<tokio_rustls::rustls::crypto::CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let says = |what: &str| Err(TlsError::Unusable(what.to_owned()));
    let file = match (spec.client_auth_type, &spec.client_ca_file) {
        (ClientAuth::RequestClientCert | ClientAuth::RequireAnyClientCert, _) => {
            return says(
                "client_auth_type: client certificates that are not verified protect nothing; \
                 write RequireAndVerifyClientCert or VerifyClientCertIfGiven",
            );
        }
        (ClientAuth::NoClientCert, None) => return Ok(None),
        (ClientAuth::NoClientCert, Some(_)) => {
            return says(
                "client_ca_file has no effect without client_auth_type: add \
                 client_auth_type: RequireAndVerifyClientCert",
            );
        }
        (_, None) => return says("client_auth_type needs client_ca_file"),
        (_, Some(file)) => file,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, read(file)?)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(file, "has a certificate that cannot be used", error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match spec.client_auth_type {
        ClientAuth::VerifyClientCertIfGiven => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder
        .build()
        .map(Some)
        .map_err(|error| unusable(file, "cannot be used", error))
}

/// Reads the certificates of a file; at least one.
fn certificates(file: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let certificates =
        certificates.map_err(|error| unusable(file, "is no certificate in PEM", error))?;
    if certificates.is_empty() {
        let why = format!("{} has no certificate in PEM", file.display());
        return Err(TlsError::Unusable(why));
    }
    Ok(certificates)
}

fn unusable(file: &Path, what: &str, why: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable(format!("{} {what}: {why}", file.display()))
}
