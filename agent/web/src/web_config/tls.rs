//! Makes an acceptor of TLS connections from the web configuration.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};

use super::spec::{ClientAuth, MinVersion, TlsSpec};

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
        (ClientAuth::RequestClientCert | ClientAuth::RequireAnyClientCert, _) => bail!(
            "client_auth_type: client certificates that are not verified protect nothing; \
             write RequireAndVerifyClientCert or VerifyClientCertIfGiven"
        ),
        (ClientAuth::NoClientCert, None) => return Ok(None),
        (ClientAuth::NoClientCert, Some(_)) => bail!(
            "client_ca_file has no effect without client_auth_type: add \
             client_auth_type: RequireAndVerifyClientCert"
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
    let verifier = builder.build();
    Ok(Some(verifier.with_context(|| about(file, "cannot be used"))?))
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
