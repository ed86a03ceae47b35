//! The value of the label `server`.

/// Returns the label of a new server: its name, with `@pid` appended if that is one of `taken`, the
/// labels of the servers that run.
///
/// A server keeps its label for life. As long as all pids differ, all labels do: with two equal ones,
/// Prometheus would refuse the whole scrape.
pub fn label<'a>(pid: u32, name: &str, mut taken: impl Iterator<Item = &'a str>) -> String {
    // A socket's path may look like a label that already has its pid.
    match name.contains('@') || taken.any(|label| label == name) {
        true => format!("{name}@{pid}"),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::label;

    /// Labels of servers by pid, as they come and go.
    #[derive(Default)]
    struct Live(BTreeMap<u32, String>);

    impl Live {
        fn start(&mut self, pid: u32, name: &str) {
            let label = label(pid, name, self.0.values().map(String::as_str));
            self.0.insert(pid, label);
        }

        fn labels(&self) -> Vec<&str> {
            self.0.values().map(String::as_str).collect()
        }
    }

    #[test]
    fn a_later_server_with_the_same_name_gets_its_pid() {
        let mut live = Live::default();
        live.start(10, "6379");
        assert_eq!(live.labels(), ["6379"]);
        live.start(11, "6379");
        assert_eq!(live.labels(), ["6379", "6379@11"]);
        live.start(12, "6379");
        live.start(13, "6380");
        live.start(14, "/run/a@6379.sock");
        let labels = ["6379", "6379@11", "6379@12", "6380", "/run/a@6379.sock@14"];
        assert_eq!(live.labels(), labels);
    }

    #[test]
    fn a_server_that_ends_renames_no_other() {
        let mut live = Live::default();
        live.start(10, "6379");
        live.start(11, "6379");
        live.0.remove(&10);
        assert_eq!(live.labels(), ["6379@11"]);
        live.start(12, "6379");
        assert_eq!(live.labels(), ["6379@11", "6379"]);
    }

    proptest! {
        #[test]
        fn no_two_labels_are_equal(
            servers in prop::collection::vec(("a?(@[0-3])?", any::<bool>()), 0..9),
        ) {
            let mut live = Live::default();
            for (pid, (name, ends)) in (0..).zip(&servers) {
                live.start(pid, name);
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
