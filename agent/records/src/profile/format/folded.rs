//! Folded stacks, a line each: what `inferno`, `flamegraph.pl`, speedscope and others read.

use std::collections::BTreeMap;

use crate::profile::{Profile, Stack};

/// Begins a stack that was not unwound to the thread's start.
pub const INCOMPLETE: &str = "[incomplete]";

/// Returns a line for each different stack: the names of its functions, the outermost first, with `;` between them, and
/// the number of samples. Lines are sorted.
pub fn folded(profile: &Profile) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        let samples = lines.entry(line(profile, stack)).or_default();
        *samples = samples.saturating_add(stack.samples);
    }
    lines.iter().map(|(line, samples)| format!("{line} {samples}\n")).collect()
}

fn line(profile: &Profile, stack: &Stack) -> String {
    let incomplete = (!stack.is_whole).then(|| INCOMPLETE.to_owned());
    // A damaged record may have any index.
    let name = |index: &u32| profile.functions.get(*index as usize);
    let names = stack.frames.iter().filter_map(name).map(|name| safe(name));
    let names: Vec<String> = incomplete.into_iter().chain(names).collect();
    names.join(";")
}

/// Returns a name without what has a meaning in this format. A file can have any name.
fn safe(name: &str) -> String {
    let means = |letter: char| letter == ';' || letter.is_control();
    name.replace(means, "_")
}

#[cfg(test)]
mod tests {
    use super::folded;
    use crate::fixture::stack;
    use crate::profile::Profile;

    #[test]
    fn a_line_for_each_different_stack() {
        let profile = Profile {
            functions: ["main", "performEvictions", "a;b\n", "unused"].map(str::to_owned).to_vec(),
            stacks: vec![
                stack(&[0, 1], true, 5),
                stack(&[0, 2], true, 3),
                stack(&[2], false, 1),
                stack(&[2, 9], false, 1),
            ],
            ..Profile::default()
        };
        assert_eq!(folded(&profile), "[incomplete];a_b_ 2\nmain;a_b_ 3\nmain;performEvictions 5\n");
    }
}
