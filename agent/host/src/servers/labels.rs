//! The value of the label `server`.

use std::collections::HashSet;

/// A server that has no label yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewServer<'a> {
    /// Process id.
    pub pid: u32,
    /// Its port, else the path of its socket, else `pid-N`.
    pub name: &'a str,
    /// The first digits of the id of the container that it is in.
    pub container: Option<&'a str>,
    /// The label that it had before the agent was restarted.
    pub had: Option<&'a str>,
}

/// Returns the labels of new servers, in their order; `live` are the names and labels of the servers that already run.
///
/// A label is the server's name. If several servers, new or live, have that name, those in a container get `@` and the
/// container's id appended. A label that is taken gets `@pid` appended: as long as all pids differ, all labels do.
/// With two equal ones, Prometheus would refuse the whole scrape.
///
/// A server keeps its label for life: the one that it had before, unless that is taken.
pub fn labels(new: &[NewServer<'_>], live: &[(&str, &str)]) -> Vec<String> {
    let mut taken: HashSet<String> = live.iter().map(|(_, label)| (*label).to_owned()).collect();
    // These first, so that no other server gets their labels.
    let mut is_free = |label: &&str| taken.insert((*label).to_owned());
    let kept = new.iter().map(|server| server.had.filter(&mut is_free));
    let kept: Vec<Option<&str>> = kept.collect();
    let mut given = Vec::with_capacity(new.len());
    for (server, kept) in new.iter().zip(kept) {
        if let Some(label) = kept {
            given.push(label.to_owned());
            continue;
        }
        let has_name = |name: &str| name == server.name;
        let of_new = new.iter().filter(|other| has_name(other.name)).count();
        let is_shared = of_new > 1 || live.iter().any(|(name, _)| has_name(name));
        let mut label = server.name.to_owned();
        if let Some(id) = server.container.filter(|_| is_shared) {
            label += &format!("@{id}");
        }
        let with_pid = format!("@{}", server.pid);
        // A socket's path may look like a label that already has an id or a pid.
        if server.name.contains('@') {
            label += &with_pid;
        }
        // Once is enough, unless the labels that servers had were made by something else.
        while !taken.insert(label.clone()) {
            label += &with_pid;
        }
        given.push(label);
    }
    given
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{NewServer, labels};

    const A: Option<&str> = Some("3601745b3bd5");
    const B: Option<&str> = Some("9f2c1b7a8e6d");

    /// A server as a scan finds it: pid, name and container.
    type Found<'a> = (u32, &'a str, Option<&'a str>);

    /// Servers with their labels by pid, as they come and go.
    #[derive(Default)]
    struct Live<'a>(BTreeMap<u32, (Found<'a>, String)>);

    impl<'a> Live<'a> {
        /// Starts servers that the same scan finds.
        fn start(&mut self, new: &[Found<'a>]) {
            self.find(new, &BTreeMap::new());
        }

        /// Finds servers, some of which had a label before, by pid.
        fn find(&mut self, new: &[Found<'a>], had: &BTreeMap<u32, String>) {
            let called = new.iter().map(|(pid, name, container)| NewServer {
                pid: *pid,
                name,
                container: *container,
                had: had.get(pid).map(String::as_str),
            });
            let live = self.0.values();
            let live: Vec<_> = live.map(|((_, name, _), label)| (*name, label.as_str())).collect();
            let given = labels(&called.collect::<Vec<_>>(), &live);
            for (server, label) in new.iter().zip(given) {
                self.0.insert(server.0, (*server, label));
            }
        }

        /// Restarts the agent, which finds all servers at once, and these too.
        fn restart_agent(&mut self, new: &[Found<'a>]) {
            let before = std::mem::take(&mut self.0);
            let all: Vec<_> = before.values().map(|(server, _)| *server).collect();
            let had = before.into_iter().map(|(pid, (_, label))| (pid, label));
            self.find(&[new, &all].concat(), &had.collect());
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
        // The host's server gets the name, under which people look for it there.
        live.start(&[(13, "6379", None)]);
        assert_eq!(live.labels()[3], "6379");
        // A label that is taken gets the pid as well.
        live.start(&[(14, "6379", A), (15, "6379", None)]);
        assert_eq!(live.labels()[4..], ["6379@3601745b3bd5@14", "6379@15"]);

        // If a container's server already has the name, it keeps it.
        let mut live = Live::default();
        live.start(&[(10, "6379", A)]);
        live.start(&[(11, "6379", None)]);
        assert_eq!(live.labels(), ["6379", "6379@11"]);

        let mut live = Live::default();
        live.start(&[(10, "6379", A)]);
        live.start(&[(11, "6379", B)]);
        assert_eq!(live.labels(), ["6379", "6379@9f2c1b7a8e6d"]);
        // The name alone is free again, but would tell nobody which of the two it is.
        live.0.remove(&10);
        live.start(&[(12, "6379", A)]);
        assert_eq!(live.labels(), together[..2].iter().rev().copied().collect::<Vec<_>>());
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

    #[test]
    fn a_server_keeps_its_label_when_the_agent_is_started_anew() {
        let mut live = Live::default();
        live.start(&[(10, "6379", A)]);
        live.start(&[(11, "6379", B)]);
        live.start(&[(12, "6380", None)]);
        live.start(&[(13, "6380", None)]);
        let before = ["6379", "6379@9f2c1b7a8e6d", "6380", "6380@13"];
        assert_eq!(live.labels(), before);
        // Two were started while there was no agent, and the second has the pid of one that has ended since.
        live.0.remove(&12);
        live.restart_agent(&[(9, "6379", None), (12, "6380", A)]);
        let after = ["6379@9", before[0], before[1], "6380@3601745b3bd5", "6380@13"];
        assert_eq!(live.labels(), after);
        live.0.remove(&10);
        live.0.remove(&12);
        live.restart_agent(&[]);
        assert_eq!(live.labels(), [after[0], after[2], after[4]]);
    }

    #[test]
    fn a_label_that_another_has_is_not_kept() {
        let had = |label: &str| [(10, label.to_owned()), (11, label.to_owned())];
        let mut live = Live::default();
        live.start(&[(9, "6379", None)]);
        live.find(&[(10, "6379", None), (11, "6379", A)], &had("6379").into());
        assert_eq!(live.labels(), ["6379", "6379@10", "6379@3601745b3bd5"]);
        // Only a foreign file says that.
        let mut live = Live::default();
        live.start(&[(9, "6379", None)]);
        live.find(&[(10, "1", None), (11, "6379", None)], &had("6379@11").into());
        assert_eq!(live.labels(), ["6379", "6379@11", "6379@11@11"]);
    }

    proptest! {
        #[test]
        fn no_two_labels_are_equal(
            scans in prop::collection::vec(
                (prop::collection::vec(("a?(@[0-3])?", "[0-3]?"), 1..4), any::<bool>(), any::<bool>()),
                0..5,
            ),
            had in prop::collection::btree_map(0..9_u32, "a?(@[0-9]){0,2}", 0..5),
        ) {
            let mut live = Live::default();
            let mut pid = 0;
            for (scan, ends, restarts) in &scans {
                let new = scan.iter().map(|(name, container)| {
                    pid += 1;
                    let container = Some(container.as_str()).filter(|id| !id.is_empty());
                    // As long as an id is: longer than any pid.
                    (pid, name.as_str(), container.map(|id| if id < "2" { "3601745b3bd5" } else { "9f2c1b7a8e6d" }))
                });
                let new: Vec<_> = new.collect();
                if *restarts {
                    let before: Vec<_> = live.labels().into_iter().map(str::to_owned).collect();
                    live.restart_agent(&new);
                    prop_assert_eq!(&live.labels()[..before.len()], before);
                } else {
                    live.find(&new, &had);
                }
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
