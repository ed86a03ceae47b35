//! The names by which the agent may be asked, if neither TLS nor a password protects it.
//!
//! Any site can point its own name at the agent's address (DNS rebinding): to the browser, the agent is then that site,
//! and its pages may read and ask everything. Only the name gives this away.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;
use rustix::system::uname;

pub struct HostNames(Vec<String>);

impl HostNames {
    /// Returns `localhost`, the host's own name, and `others`.
    pub fn new(mut others: Vec<String>) -> Self {
        others.push("localhost".to_owned());
        others.push(uname().nodename().to_string_lossy().into_owned());
        Self(others)
    }

    /// Returns a host that a request names and that is not this one.
    pub fn stranger(&self, request: &Request) -> Option<String> {
        let in_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let mut named = request.headers().get_all(header::HOST).iter().map(|host| host.as_bytes()).chain(in_target);
        named.find(|host| !self.has(host)).map(|host| String::from_utf8_lossy(host).into_owned())
    }

    /// Returns whether this is one of the names, or an address, for which no name was looked up.
    fn has(&self, host: &[u8]) -> bool {
        let Ok(authority) = Authority::try_from(host) else { return false };
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok() || self.0.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::HostNames;

    #[test]
    fn addresses_and_own_names_are_told_from_others() {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let names = HostNames::new(vec!["cache1.example.com".to_owned()]);
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:9739", true),
            ("127.0.0.1:9739", true),
            ("192.0.2.7", true),
            ("[::1]:9739", true),
            ("cache1.example.com:9739", true),
            (&own, true),
            ("evil.example:9739", false),
            ("localhost.evil.example", false),
            ("localhost@evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
            ("a b", false),
        ] {
            assert_eq!(names.has(host.as_bytes()), expected, "{host}");
        }
    }
}
