//! What the rules read.

use std::collections::BTreeSet;

use anyhow::Result;
use regex::Regex;

/// The suffixes of a histogram's series.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// What the rules record and read over a range of it, or from a time before, with a value at which no alert fires.
pub const RECORDED: [(&str, &str); 3] = [
    ("server:evictscope_memory_saturation:ratio", "0.5"),
    ("server:evictscope_stall:ratio_rate5m", "0"),
    (
        "server:evictscope_client_buffers_sample_bytes:p50_1h",
        "65536",
    ),
];

/// The families that the rules read.
pub struct Families(BTreeSet<String>);

impl Families {
    /// Finds them in the text of the rules.
    pub fn of_rules(rules: &str) -> Result<Self> {
        let name = Regex::new("evictscope_[a-z_]+")?;
        let names = name.find_iter(rules).map(|name| family(name.as_str()));
        Ok(Self(names.map(str::to_owned).collect()))
    }

    /// Returns whether the family of this series is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(family(name))
    }
}

/// Returns the family of a series: a histogram has three kinds of series.
pub fn family(name: &str) -> &str {
    let mut bases = SUFFIXES
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix));
    bases.next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use evictscope_testkit::workspace;

    use super::*;

    /// Returns the recorded series that are read at other times than now: in front of a range or of `offset`, by
    /// themselves or in an expression in parentheses.
    fn read_in_the_past(rules: &str) -> Result<BTreeSet<&str>> {
        let name = Regex::new(r"server:[a-z0-9_:]+")?;
        let past = Regex::new(r"(server:[a-z0-9_:]+(?:\{[^}]*\})?|\))\s*(?:\[|offset\b|@)")?;
        let of = past.captures_iter(rules).filter_map(|found| found.get(1));
        let read = of.flat_map(|of| {
            let mut open = 0;
            let begin = match of.as_str() {
                ")" => rules[..of.end()].rfind(|letter| {
                    open += i32::from(letter == ')') - i32::from(letter == '(');
                    open == 0
                }),
                _ => Some(of.start()),
            };
            name.find_iter(&rules[begin.unwrap_or(0)..of.end()])
        });
        Ok(read.map(|name| name.as_str()).collect())
    }

    #[test]
    fn what_is_read_in_the_past_is_found() -> Result<()> {
        let rules = r#"server:now:a > 1 and rate(server:range:a[5m]) > server:labels:a{x="y"}  offset 10m
            and max_over_time((clamp_max(server:inside:a, 1) > 2)[1h:5m]) > (server:now:b)"#;
        let found: Vec<&str> = read_in_the_past(rules)?.into_iter().collect();
        assert_eq!(
            found,
            ["server:inside:a", "server:labels:a", "server:range:a"]
        );
        Ok(())
    }

    #[test]
    fn what_the_rules_read_in_the_past_has_a_past() -> Result<()> {
        let mut rules = String::new();
        for file in workspace::files_ending(&workspace::root().join("dashboards/rules"), "yaml")? {
            rules += &fs::read_to_string(file)?;
        }
        let read = read_in_the_past(&rules)?;
        assert_eq!(read, RECORDED.iter().map(|(name, _)| *name).collect());
        for name in read {
            assert!(rules.contains(&format!("record: {name}\n")), "{name}");
        }
        Ok(())
    }
}
