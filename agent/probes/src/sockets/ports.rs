//! Which connections of a server are those of clients.

use std::collections::BTreeSet;

/// The cluster bus is at a server's port plus this, unless `cluster-port` says otherwise.
const BUS_OFFSET: u16 = 10_000;

/// The ports of one server. What it has accepted on a port at which it listens is a connection of a client, unless that
/// port is the cluster bus; what it has connected itself has another port.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Where it listens, or has listened since it was first looked at: connections outlive that.
    listened: BTreeSet<u16>,
    /// Whether it is of a cluster; `None` if that is not known.
    pub is_cluster: Option<bool>,
    /// The port of the cluster bus, if it was set.
    pub bus: Option<u16>,
}

impl Ports {
    /// Notes that it listens at a port.
    pub(super) fn listens(&mut self, port: u16) {
        self.listened.insert(port);
    }

    /// Returns whether its connections with this port, 0 for Unix sockets, are those of clients.
    pub(super) fn is_of_clients(&self, port: u16) -> bool {
        port == 0 || self.listened.contains(&port) && !self.is_bus(port)
    }

    fn is_bus(&self, port: u16) -> bool {
        let is_offset = || port.checked_sub(BUS_OFFSET).is_some_and(|of| self.listened.contains(&of));
        self.is_cluster != Some(false) && self.bus.map_or_else(is_offset, |bus| bus == port)
    }
}

#[cfg(test)]
mod tests {
    use super::Ports;

    fn clients(ports: Ports) -> Vec<u16> {
        let mut ports = ports;
        for port in [6379, 6380, 16379] {
            ports.listens(port);
        }
        let all = [0, 6379, 6380, 16379, 43210];
        Vec::from_iter(all.into_iter().filter(|port| ports.is_of_clients(*port)))
    }

    #[test]
    fn the_bus_and_what_the_server_connected_are_no_clients() {
        let none = Ports::default();
        assert_eq!(clients(none.clone()), [0, 6379, 6380]);
        let alone = Ports { is_cluster: Some(false), ..none.clone() };
        assert_eq!(clients(alone), [0, 6379, 6380, 16379]);
        let set = Ports { is_cluster: Some(true), bus: Some(6380), ..none };
        assert_eq!(clients(set), [0, 6379, 16379]);
    }
}
