//! The value of the label `server`.

/// What a server can be called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called<'a> {
    /// Process id.
    pub pid: u32,
    /// Its port, else the path of its socket, else `pid-N`.
    pub name: &'a str,
    /// The first digits of the id of the container that it is in.
    pub container: Option<&'a str>,
}

/// Returns the labels of new servers, in their order; `live` are the names and labels of the servers that run already.
///
/// A label is the server's name. Where several servers have that name, new or live, those in a container get `@` and
/// the container's id appended. A label that is taken gets `@pid` appended: as long as all pids differ, all labels do.
/// With two equal ones, Prometheus would refuse the whole scrape.
///
/// A server keeps its label for life.
pub fn labels(new: &[Called<'_>], live: &[(&str, &str)]) -> Vec<String> {
    let mut given: Vec<String> = Vec::with_capacity(new.len());
    for server in new {
        let has_name = |name: &str| name == server.name;
        let of_new = new.iter().filter(|other| has_name(other.name)).count();
        let is_shared = of_new > 1 || live.iter().any(|(name, _)| has_name(name));
        let mut label = server.name.to_owned();
        if let Some(id) = server.container.filter(|_| is_shared) {
            label += &format!("@{id}");
        }
        let mut taken = live.iter().map(|(_, label)| *label);
        let is_taken = taken.any(|other| other == label) || given.contains(&label);
        // A socket's path may look like a label that already has an id or a pid.
        if is_taken || server.name.contains('@') {
            label += &format!("@{}", server.pid);
        }
        given.push(label);
    }
    given
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Called, labels};

    const A: Option<&str> = Some("3601745b3bd5");
    const B: Option<&str> = Some("9f2c1b7a8e6d");

    /// Names and labels of servers by pid, as they come and go.
    #[derive(Default)]
    struct Live<'a>(BTreeMap<u32, (&'a str, String)>);

    impl<'a> Live<'a> {
        /// Starts servers that the same scan finds.
        fn start(&mut self, new: &[(u32, &'a str, Option<&'a str>)]) {
            let new = new.iter().map(|(pid, name, container)| Called {
                pid: *pid,
                name,
                container: *container,
            });
            let new: Vec<_> = new.collect();
            let live: Vec<_> = self
                .0
                .values()
                .map(|(name, label)| (*name, label.as_str()))
                .collect();
            let given = labels(&new, &live);
            for (server, label) in new.iter().zip(given) {
                self.0.insert(server.pid, (server.name, label));
            }
        }

        fn labels(&self) -> Vec<&str> {
            self.0.values().map(|(_, label)| label.as_str()).collect()
        }
    }

    #[test]
    fn a_later_server_with_the_same_name_gets_its_pid() {
        let mut live = Live::default();
        live.start(&[(10, "6379", None)]);
        assert_eq!(live.labels(), ["6379"]);
        live.start(&[(11, "6379", None)]);
        assert_eq!(live.labels(), ["6379", "6379@11"]);
        live.start(&[(12, "6379", None), (13, "6380", None)]);
        live.start(&[(14, "/run/a@6379.sock", None)]);
        let labels = ["6379", "6379@11", "6379@12", "6380", "/run/a@6379.sock@14"];
        assert_eq!(live.labels(), labels);
    }

    #[test]
    fn servers_in_containers_that_share_a_name_get_the_id() {
        let mut live = Live::default();
        live.start(&[(10, "6379", A), (11, "6379", B), (12, "6380", A)]);
        let together = ["6379@3601745b3bd5", "6379@9f2c1b7a8e6d", "6380"];
        assert_eq!(live.labels(), together);
        // That of the host keeps the name, which a human looks for there.
        live.start(&[(13, "6379", None)]);
        assert_eq!(live.labels()[3], "6379");

        let mut live = Live::default();
        live.start(&[(10, "6379", A)]);
        live.start(&[(11, "6379", B)]);
        assert_eq!(live.labels(), ["6379", "6379@9f2c1b7a8e6d"]);
        // The name alone is free again, but would tell nobody which of the two it is.
        live.0.remove(&10);
        live.start(&[(12, "6379", A)]);
        assert_eq!(
            live.labels(),
            together[..2].iter().rev().copied().collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_label_that_is_taken_gets_the_pid_as_well() {
        let mut live = Live::default();
        live.start(&[
            (10, "6379", A),
            (11, "6379", A),
            (12, "6379", None),
            (13, "6379", None),
        ]);
        let labels = [
            "6379@3601745b3bd5",
            "6379@3601745b3bd5@11",
            "6379",
            "6379@13",
        ];
        assert_eq!(live.labels(), labels);
    }

    #[test]
    fn a_server_that_ends_renames_no_other() {
        let mut live = Live::default();
        live.start(&[(10, "6379", None)]);
        live.start(&[(11, "6379", None)]);
        live.0.remove(&10);
        assert_eq!(live.labels(), ["6379@11"]);
        live.start(&[(12, "6379", None)]);
        assert_eq!(live.labels(), ["6379@11", "6379"]);
    }

    proptest! {
        #[test]
        fn no_two_labels_are_equal(
            scans in prop::collection::vec(
                (prop::collection::vec(("a?(@[0-3])?", "[0-3]?"), 1..4), any::<bool>()),
                0..5,
            ),
        ) {
            let mut live = Live::default();
            let mut pid = 0;
            for (scan, ends) in &scans {
                let new = scan.iter().map(|(name, container)| {
                    pid += 1;
                    let container = Some(container.as_str()).filter(|id| !id.is_empty());
                    // As long as an id is: longer than any pid.
                    (pid, name.as_str(), container.map(|id| if id < "2" { "3601745b3bd5" } else { "9f2c1b7a8e6d" }))
                });
                live.start(&new.collect::<Vec<_>>());
                let mut labels = live.labels();
                labels.sort_unstable();
                prop_assert!(labels.windows(2).all(|pair| pair[0] != pair[1]));
                if *ends {
                    live.0.remove(&(pid / 2));
                }
            }
        }
    }
}
