//! The loopback interface: its free ports, and HTTP.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};

use crate::wait::HANG;

/// Ports below those that the kernel gives to connections by default (`net.ipv4.ip_local_port_range`).
const BELOW_CONNECTIONS: Range<u16> = 20_000..32_768;

const LONGEST: u64 = 64 << 20;

pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free loopback port")?;
    Ok(listener.local_addr()?.port())
}

/// Returns a free port for a program that will listen only later. The kernel gives it to none of the thousands of
/// connections that are made until then.
pub fn port_for_later() -> Result<u16> {
    // Two of these programs begin at different ports.
    let first = std::process::id() as usize % BELOW_CONNECTIONS.len();
    let mut ports = BELOW_CONNECTIONS.cycle().skip(first).take(BELOW_CONNECTIONS.len());
    let free = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.context("cannot find a free loopback port below 32768")
}

pub struct Http {
    client: ureq::Agent,
    base: String,
}

impl Http {
    pub fn new(port: u16) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(HANG))
            .http_status_as_error(false)
            // A proxy that the environment names cannot reach this interface.
            .proxy(None)
            .build();
        Self { client: config.new_agent(), base: format!("http://127.0.0.1:{port}") }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<(u16, String)> {
        let url = self.url(path);
        let request = self.client.get(&url).query_pairs(parameters.iter().copied());
        let read = || format!("cannot read {url}");
        let mut answer = request.call().with_context(read)?;
        let text = answer.body_mut().with_config().limit(LONGEST).read_to_string().with_context(read)?;
        Ok((answer.status().as_u16(), text))
    }

    /// Returns the text of a page, whose status must be 200.
    pub fn get(&self, path: &str) -> Result<String> {
        let (status, text) = self.ask(path, &[])?;
        ensure!(status == 200, "{} answers {status} instead of 200", self.url(path));
        Ok(text)
    }
}
