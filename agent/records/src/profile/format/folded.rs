//! Folded stacks, a line each: what `inferno`, `flamegraph.pl`, speedscope and others read.

use std::collections::BTreeMap;

use crate::profile::{Activity, Profile, Stack};

/// Begins a stack that was not unwound to the thread's start.
pub const INCOMPLETE: &str = "[incomplete]";

/// Returns a line for each different stack: the names of its functions, the outermost first, with `;` between them, and
/// the number of samples. Lines are sorted. With an activity, only stacks in which it ran are included.
pub fn folded(profile: &Profile, which: Option<Activity>) -> String {
    let wanted = profile.stacks.iter().filter(|stack| which.is_none_or(|which| stack.activity == which));
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in wanted {
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
    use crate::profile::{Activity, Profile, Stack};

    #[test]
    fn a_line_for_each_different_stack() {
        let stack = |frames: &[u32], activity, is_whole, samples| Stack {
            frames: frames.to_vec(),
            activity,
            is_whole,
            samples,
            at_ms: Vec::new(),
        };
        let profile = Profile {
            functions: ["main", "performEvictions", "a;b\n", "unused"].map(str::to_owned).to_vec(),
            stacks: vec![
                stack(&[0, 1], Activity::EvictionCall, true, 5),
                stack(&[0, 2], Activity::Other, true, 3),
                stack(&[2], Activity::Other, false, 1),
                stack(&[2, 9], Activity::Other, false, 1),
            ],
            ..Profile::default()
        };
        assert_eq!(folded(&profile, None), "[incomplete];a_b_ 2\nmain;a_b_ 3\nmain;performEvictions 5\n");
        assert_eq!(folded(&profile, Some(Activity::EvictionCall)), "main;performEvictions 5\n");
        assert_eq!(folded(&profile, Some(Activity::ExpireCycle)), "");
    }
}
