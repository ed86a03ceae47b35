//! Real servers, the real agent and real scrapes for the end-to-end tests.
//!
//! Everything started here is ended when it is dropped, by its pid.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod agent;
pub mod program;
pub mod redis;
pub mod scrape;
pub mod servers;

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// A loopback port that nobody listens on at this moment.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Tries `attempt` until it answers, for `limit` at most, and says how long it took.
pub fn within<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<(T, Duration)> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = attempt()? {
            return Ok((answer, begun.elapsed()));
        }
        if begun.elapsed() > limit {
            bail!("not within {limit:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
