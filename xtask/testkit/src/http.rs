//! HTTP on the loopback interface.

use anyhow::{Context as _, Result, ensure};

use crate::wait::HANG;

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// A server on the loopback interface.
pub struct Http {
    client: ureq::Agent,
    base: String,
}

impl Http {
    /// Returns the server on this port.
    pub fn new(port: u16) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(HANG))
            .http_status_as_error(false)
            // A proxy that the environment names cannot reach this interface.
            .proxy(None)
            .build();
        Self { client: config.new_agent(), base: format!("http://127.0.0.1:{port}") }
    }

    /// Returns the address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Returns the status and the text of a page, asked for with these parameters.
    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<(u16, String)> {
        let url = self.url(path);
        let mut request = self.client.get(&url);
        for (key, value) in parameters {
            request = request.query(key, value);
        }
        let read = || format!("cannot read {url}");
        let mut answer = request.call().with_context(read)?;
        let body = answer.body_mut().with_config().limit(LONGEST);
        let text = body.read_to_string().with_context(read)?;
        Ok((answer.status().as_u16(), text))
    }

    /// Returns the text of a page.
    ///
    /// # Errors
    ///
    /// Fails if the status is not 200.
    pub fn get(&self, path: &str) -> Result<String> {
        let (status, text) = self.ask(path, &[])?;
        let url = self.url(path);
        ensure!(status == 200, "{url} answers {status} instead of 200");
        Ok(text)
    }
}
