//! The value of the label `server`.

use std::collections::HashMap;

/// The label of each server, given its pid and its name: the name, with `@pid` appended where two
/// servers share it. No two labels are equal, as long as no two pids are: Prometheus would refuse
/// the whole scrape.
pub fn labels(servers: &[(u32, &str)]) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for (_, name) in servers {
        *uses.entry(name).or_default() += 1;
    }
    let label = |(pid, name): &(u32, &str)| {
        // A socket's path may look like a label that already has its pid.
        if uses.get(name) == Some(&1) && !name.contains('@') {
            (*name).to_owned()
        } else {
            format!("{name}@{pid}")
        }
    };
    servers.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::labels;

    #[test]
    fn servers_that_share_a_name_get_their_pid() {
        let servers = [
            (10, "6379"),
            (11, "6380"),
            (12, "6379"),
            (13, "/run/redis.sock"),
        ];
        assert_eq!(
            labels(&servers),
            ["6379@10", "6380", "6379@12", "/run/redis.sock"]
        );
    }

    proptest! {
        #[test]
        fn no_two_labels_are_equal(names in prop::collection::vec("a?(@[0-3])?", 0..5)) {
            let servers: Vec<_> = (0..).zip(names.iter().map(String::as_str)).collect();
            let labels = labels(&servers);
            let distinct: HashSet<_> = labels.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
        }
    }
}
