//! What a web configuration may say, and what becomes of it when the files change.

use std::path::Path;

use anyhow::ensure;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::WebConfig;

/// A directory with a certificate and its key, another key, and an authority.
fn directory() -> anyhow::Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    write("server.crt", certificate.pem())?;
    write("server.key", key.serialize_pem())?;
    write("other.key", KeyPair::generate()?.serialize_pem())?;
    write("nothing.pem", "nothing\n".to_owned())?;
    Ok(directory)
}

fn load(directory: &Path, text: &str) -> anyhow::Result<Result<WebConfig, String>> {
    let path = directory.join("web.yml");
    std::fs::write(&path, text)?;
    let shown = format!("{}/", directory.display());
    Ok(WebConfig::load(&path).map_err(|error| error.to_string().replace(&shown, "")))
}

const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

#[test]
fn what_protects_is_accepted() -> anyhow::Result<()> {
    let directory = directory()?;
    let alice = format!(
        "basic_auth_users:\n  alice: {}\n",
        bcrypt::hash("secret", 4)?
    );
    for (text, tls, users) in [
        ("".to_owned(), false, false),
        ("# nothing\n".to_owned(), false, false),
        ("basic_auth_users:\n".to_owned(), false, false),
        (TLS.to_owned(), true, false),
        (alice.clone(), false, true),
        (format!("{TLS}{alice}"), true, true),
        (format!("{TLS}  min_version: TLS13\n"), true, false),
        (
            format!(
                "{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: server.crt\n"
            ),
            true,
            false,
        ),
        (
            format!(
                "{TLS}  client_auth_type: \"VerifyClientCertIfGiven\"\n  client_ca_file: server.crt\n"
            ),
            true,
            false,
        ),
    ] {
        let config = load(directory.path(), &text)?.map_err(anyhow::Error::msg)?;
        let now = config.web().now();
        ensure!(
            now.tls.is_some() == tls && now.users.is_some() == users,
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn what_cannot_be_done_is_refused_by_name() -> anyhow::Result<()> {
    let directory = directory()?;
    for (text, said) in [
        ("tls_server_config: {}".to_owned(), "cert_file"),
        ("users:\n  a: b\n".to_owned(), "users"),
        (format!("{TLS}  cipher_suites: []\n"), "cipher_suites"),
        (format!("{TLS}  min_version: TLS10\n"), "TLS10"),
        (
            TLS.replace("server.crt", "gone.crt"),
            "cannot read gone.crt",
        ),
        (
            TLS.replace("server.key", "other.key"),
            "server.crt does not go with key_file",
        ),
        (
            TLS.replace("server.crt", "nothing.pem"),
            "nothing.pem has no certificate in PEM",
        ),
        (
            TLS.replace("server.key", "nothing.pem"),
            "nothing.pem is no private key in PEM",
        ),
        (
            format!("{TLS}  client_auth_type: RequireAnyClientCert\n"),
            "protect nothing",
        ),
        (
            format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n"),
            "needs client_ca_file",
        ),
        (format!("{TLS}  client_ca_file: server.crt\n"), "no effect"),
        (
            "basic_auth_users:\n  alice: secret\n".to_owned(),
            "basic_auth_users, alice: not a bcrypt hash",
        ),
        ("basic_auth_users: [alice]\n".to_owned(), "line 1"),
        ("a: [\n".to_owned(), "web.yml"),
    ] {
        let answer = load(directory.path(), &text)?.map(|_| ());
        let right =
            matches!(&answer, Err(error) if error.contains(said) && !error.contains("secret\n"));
        ensure!(right, "{text}: {answer:?}");
    }
    Ok(())
}

#[test]
fn a_change_that_cannot_be_used_leaves_what_was_in_force() -> anyhow::Result<()> {
    let directory = directory()?;
    let path = directory.path().join("web.yml");
    let mut config = load(directory.path(), TLS)?.map_err(anyhow::Error::msg)?;
    let tls = |config: &WebConfig| {
        config
            .web()
            .now()
            .tls
            .as_ref()
            .map(|tls| std::ptr::from_ref(tls.config().as_ref()))
    };
    let settle = |config: &mut WebConfig| (0..2).for_each(|_| config.look());
    let first = tls(&config);
    ensure!(first.is_some());

    // The key is replaced, and its certificate not yet.
    let key = directory.path().join("server.key");
    let right = std::fs::read(&key)?;
    std::fs::copy(directory.path().join("other.key"), &key)?;
    settle(&mut config);
    ensure!(tls(&config) == first);
    std::fs::write(&key, right)?;
    settle(&mut config);
    let second = tls(&config);
    ensure!(second.is_some() && second != first);

    std::fs::remove_file(&path)?;
    settle(&mut config);
    ensure!(tls(&config) == second);
    // As a file that is being written may be found.
    std::fs::write(&path, "")?;
    config.look();
    std::fs::write(&path, TLS)?;
    settle(&mut config);
    ensure!(tls(&config).is_some());
    std::fs::write(&path, "")?;
    settle(&mut config);
    ensure!(tls(&config).is_none());
    Ok(())
}
