//! Tests which web configurations are accepted, and that changes of the files take effect.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::WebConfig;

/// Makes a directory with a certificate and its key, another key, and a file with neither.
pub fn directory() -> anyhow::Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text);
    let key = KeyPair::generate()?;
    write("server.crt", CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?.pem())?;
    write("server.key", key.serialize_pem())?;
    write("other.key", KeyPair::generate()?.serialize_pem())?;
    write("nothing.pem", "nothing\n".to_owned())?;
    Ok(directory)
}

fn load(directory: &Path, text: &str) -> anyhow::Result<Result<WebConfig, String>> {
    let path = directory.join("web.yml");
    std::fs::write(&path, text)?;
    let shown = format!("{}/", directory.display());
    Ok(WebConfig::load(&path).map_err(|error| format!("{error:#}").replace(&shown, "")))
}

pub const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

#[test]
fn what_protects_is_accepted() -> anyhow::Result<()> {
    let directory = directory()?;
    let hash = bcrypt::hash("secret", 4)?;
    let alice = format!("basic_auth_users:\n  alice: {hash}\n");
    let client = |kind| format!("{TLS}  client_auth_type: {kind}\n  client_ca_file: server.crt\n");
    for (text, tls, users) in [
        (TLS.to_owned(), true, false),
        (alice.clone(), false, true),
        (format!("{TLS}{alice}"), true, true),
        (format!("{TLS}  min_version: TLS13\n"), true, false),
        (client("RequireAndVerifyClientCert"), true, false),
        (client("\"VerifyClientCertIfGiven\""), true, false),
    ] {
        let now = load(directory.path(), &text)?.map_err(anyhow::Error::msg)?.web().now();
        let found = (now.tls.is_some(), now.users.is_some());
        ensure!(found == (tls, users), "{text}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_done_is_refused_by_name() -> anyhow::Result<()> {
    let directory = directory()?;
    let refused = |text: &str, said| {
        let answer = load(directory.path(), text)?.map(|_| ());
        let is_right = |error: &String| error.contains(said) && !error.contains("secret\n");
        ensure!(answer.as_ref().is_err_and(is_right), "{text}: {answer:?}");
        Ok(())
    };
    refused("", "protects nothing")?;
    refused("# nothing\n", "protects nothing")?;
    refused("basic_auth_users:\n", "protects nothing")?;
    refused("tls_server_config: {}", "cert_file")?;
    refused("users:\n  a: b\n", "users")?;
    refused("basic_auth_users: [alice]\n", "line 1")?;
    refused("a: [\n", "web.yml")?;
    refused("basic_auth_users:\n  alice: secret\n", "basic_auth_users, alice: not a bcrypt hash")?;
    for (from, to, said) in [
        ("server.crt", "gone.crt", "cannot read gone.crt"),
        ("server.key", "other.key", "server.crt does not match key_file"),
        ("server.crt", "nothing.pem", "nothing.pem has no certificate in PEM"),
        ("server.key", "nothing.pem", "nothing.pem is not a private key in PEM"),
    ] {
        refused(&TLS.replace(from, to), said)?;
    }
    for (line, said) in [
        ("cipher_suites: []", "cipher_suites"),
        ("min_version: TLS10", "TLS10"),
        ("client_auth_type: RequireAnyClientCert", "RequireAndVerifyClientCert"),
        ("client_auth_type: RequireAndVerifyClientCert", "needs client_ca_file"),
        ("client_ca_file: server.crt", "no effect"),
    ] {
        refused(&format!("{TLS}  {line}\n"), said)?;
    }
    Ok(())
}

#[test]
fn a_change_that_cannot_be_used_leaves_what_was_in_force() -> anyhow::Result<()> {
    let directory = directory()?;
    let path = directory.path().join("web.yml");
    let mut config = load(directory.path(), TLS)?.map_err(anyhow::Error::msg)?;
    let tls = |config: &WebConfig| Some(std::ptr::from_ref(config.web().now().tls.as_ref()?.config().as_ref()));
    let settle = |config: &mut WebConfig| (0..2).for_each(|_| config.look());
    let first = tls(&config);
    ensure!(first.is_some());

    // The key is replaced, but its certificate is not yet.
    let key = directory.path().join("server.key");
    let right = std::fs::read(&key)?;
    std::fs::copy(directory.path().join("other.key"), &key)?;
    settle(&mut config);
    ensure!(tls(&config) == first);
    std::fs::write(&key, right)?;
    settle(&mut config);
    let second = tls(&config);
    ensure!(second.is_some() && second != first);

    // Neither of these has an end.
    for (file, kind) in [(&key, "/dev/zero"), (&path, "a pipe")] {
        std::fs::rename(file, directory.path().join("kept"))?;
        match kind {
            "a pipe" => ensure!(Command::new("mkfifo").arg(file).status()?.success()),
            device => symlink(device, file)?,
        }
        settle(&mut config);
        ensure!(tls(&config) == second, "{kind}");
        let why = WebConfig::load(&path).map(drop).err().map(|error| format!("{error:#}"));
        ensure!(why.is_some_and(|why| why.contains("not a regular file")), "{kind}");
        std::fs::rename(directory.path().join("kept"), file)?;
    }
    std::fs::remove_file(&path)?;
    settle(&mut config);
    ensure!(tls(&config) == second);
    std::fs::write(&path, "")?;
    settle(&mut config);
    ensure!(tls(&config) == second);

    // A file is applied when two looks have found the same: it may be half written.
    let hash = bcrypt::hash("secret", 4)?;
    std::fs::write(&path, format!("basic_auth_users:\n  alice: {hash}\n"))?;
    config.look();
    ensure!(tls(&config) == second);
    std::fs::write(&path, TLS)?;
    settle(&mut config);
    ensure!(tls(&config).is_some());
    Ok(())
}
