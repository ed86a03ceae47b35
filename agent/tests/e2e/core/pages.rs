//! The pages of a server with a hostile name, as curl gets them, and which requests are refused.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;

use crate::prelude::*;

/// The name of a socket, which is markup, and its form in an address.
const SOCKET: &str = "<script>alert('1')<";
const ESCAPED: &str = "%3Cscript%3Ealert%28%271%27%29%3C";

/// Asks the agent with curl, which sends the path as it is.
fn curl(agent: &Agent, path: &str, options: &[&str]) -> anyhow::Result<Output> {
    let base = agent.metrics_url().replace("/metrics", "");
    Command::new("curl")
        .args(["--silent", "--max-time", "300", "--path-as-is", "--include"])
        .args(options)
        .arg(format!("{base}{path}"))
        .output()
        .context("cannot run curl; `apt-get install curl`")
}

/// Returns the status of an answer, and the whole answer with its headers.
fn ask(agent: &Agent, path: &str, options: &[&str]) -> anyhow::Result<(u16, String)> {
    let text = String::from_utf8(curl(agent, path, options)?.stdout)?;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| format!("{path}: {text}"))?, text))
}

/// Starts a server that listens only on a Unix socket with that name.
fn hostile_server(build: &PrivateBuild, directory: &Path) -> anyhow::Result<Owned> {
    let socket = directory.join(SOCKET);
    let server = Owned::start(
        Command::new(build.path())
            .args(["--port", "0", "--save", "", "--maxmemory", "64mb"])
            .arg("--unixsocket")
            .arg(&socket)
            .current_dir(directory),
    )?;
    server.until("redis-server listens", || Ok(socket.exists().then_some(())))?;
    Ok(server)
}

fn must_be_protected(path: &str, answer: &str) -> anyhow::Result<()> {
    for header in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff\r\n",
        "referrer-policy: same-origin\r\n",
    ] {
        ensure!(answer.contains(header), "{path} lacks {header}: {answer}");
    }
    ensure!(!answer.contains("<script"), "{path} has a script: {answer}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn pages_show_hostile_names_as_text() -> anyhow::Result<()> {
    let directory = tempfile::Builder::new().prefix("\"b'&").tempdir()?;
    let build = PrivateBuild::of_redis()?;
    let _server = hostile_server(&build, directory.path())?;
    let agent = Agent::start(&[])?;
    let damaged = "20261122T031205.250Z-6379-1.json.gz";
    std::fs::write(agent.state().join("records").join(damaged), "no record")?;
    let parent = directory.path().to_str().context("an odd directory")?.replace('/', "%2F").replace('"', "%22");
    let parent = parent.replace('\'', "%27").replace('&', "%26");
    let label = format!("{parent}%2F{ESCAPED}");
    let page = format!("/server/{label}");
    until_true("the server has a page", || Ok(ask(&agent, &page, &[])?.0 == 200))?;
    until_true("its last minutes are drawn", || {
        let (_, text) = ask(&agent, &page, &[])?;
        Ok(text.contains("<strong>Memory</strong>"))
    })?;
    let text = "&lt;script&gt;alert('1')&lt;";
    for path in ["/", &page, &format!("/heatmap.svg?server={label}")] {
        let (status, answer) = ask(&agent, path, &[])?;
        ensure!(status == 200, "{path}: {answer}");
        must_be_protected(path, &answer)?;
        let is_shown = answer.contains(text) || answer.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;");
        ensure!(is_shown || answer.contains("&lt;script&gt;alert(&apos;1&apos;)&lt;"), "{path}: {answer}");
    }
    // As the page's button does, from another site and from its own.
    let record = format!("{page}/record");
    for (site, expected) in [("cross-site", 403), ("same-origin", 303)] {
        let header = format!("Sec-Fetch-Site: {site}");
        let (status, answer) = ask(&agent, &record, &["--location", "--data", "", "--header", &header])?;
        let is_shown = answer.contains("<strong>What happened: ") && answer.contains("Within each second: ");
        ensure!(status == expected && is_shown == (status == 303), "{site}: {answer}");
    }
    let (_, all) = ask(&agent, "/", &[])?;
    let link = format!("href=\"{page}\"");
    ensure!(all.contains(&link), "no {link} in {all}");
    ensure!(all.contains("Cannot be read: "), "{all}");
    let (status, list) = ask(&agent, "/api/v1/records", &[])?;
    ensure!(status == 200 && list.contains(damaged), "{list}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn what_is_not_there_is_refused() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    let agent = Agent::watching(&redis, &[])?;
    let outside = agent.state().join("outside.json.gz");
    std::fs::write(outside, "not to be read")?;
    for path in [
        "/server/7",
        "/bursts/20231114T221320.000Z-6379-101",
        "/bursts/../outside",
        "/bursts/..%2Foutside",
        "/bursts/%2E%2E%2Foutside",
        "/bursts/..",
        "/bursts/%00",
        "/bursts/",
        "/bursts/%FF",
        "/api/v1/records/..%2Foutside",
        "/api/v1/records/%2Fetc%2Fpasswd",
        "/server/..%2F..%2Fetc%2Fpasswd",
        "/debug/pprof/profile?server=7&seconds=1",
        "/debug/pprof/profile?seconds=0",
        "/debug/pprof/profile?seconds=100000",
    ] {
        let (status, answer) = ask(&agent, path, &[])?;
        ensure!(matches!(status, 400 | 404), "{path}: {answer}");
        must_be_protected(path, &answer)?;
    }
    let (status, answer) = ask(&agent, "/api/v1/records?server=7", &["--request", "POST"])?;
    ensure!(status == 404, "{answer}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_profile_is_one_that_pprof_reads() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    let agent = Agent::watching(&redis, &[])?;
    let _load = redis.load("-t set -r 1000 -P 16 -n 100000000")?;
    is_profiled(&agent, &redis)
}

/// Takes profiles of a server until one has its commands: a thread that has no CPU meanwhile has no samples.
pub fn is_profiled(agent: &Agent, redis: &Redis) -> anyhow::Result<()> {
    let path = format!("/debug/pprof/profile?server={}&seconds=2", redis.name());
    until_true("the profile has processCommand()", || {
        let profile = profile(agent, &path)?;
        let name = b"processCommand";
        Ok(profile.windows(name.len()).any(|part| part == name))
    })
}

fn profile(agent: &Agent, path: &str) -> anyhow::Result<Vec<u8>> {
    // It must not be compressed once more.
    let answer = curl(agent, path, &["--header", "Accept-Encoding: gzip"])?.stdout;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (headers, body) = answer.split_at(end.context("no end of the headers")? + 4);
    let headers = std::str::from_utf8(headers)?;
    ensure!(headers.starts_with("HTTP/1.1 200 "), "{headers}{}", String::from_utf8_lossy(body));
    ensure!(!headers.contains("content-encoding"), "{headers}");
    let mut profile = Vec::new();
    GzDecoder::new(body).read_to_end(&mut profile)?;
    Ok(profile)
}
