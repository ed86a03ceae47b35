//! Free TCP ports of the loopback interface.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use anyhow::{Context as _, Result};

/// Ports below those that the kernel gives to connections by default (`net.ipv4.ip_local_port_range`).
const BELOW_CONNECTIONS: Range<u16> = 20_000..32_768;

/// Returns a port that is free at this moment.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free loopback port")?;
    Ok(listener.local_addr()?.port())
}

/// Returns a free port for a program that will listen only later.
///
/// The kernel gives it to none of the thousands of connections that are made until then.
pub fn port_for_later() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    // Two of these programs begin at different ports.
    let first = std::process::id() as usize % BELOW_CONNECTIONS.len();
    BELOW_CONNECTIONS
        .cycle()
        .skip(first)
        .take(BELOW_CONNECTIONS.len())
        .find(is_free)
        .context("cannot find a free loopback port below 32768")
}
