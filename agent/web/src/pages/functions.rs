//! Where the main thread spent its time, by function: flame graphs, and a table of the hottest functions.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evictscope_records::profile::format::flame_graph;
use evictscope_records::profile::{Activity, Profile};
use maud::{Markup, html};

use super::text::{duration, grouped, percent, table};

const MOST: usize = 20;

pub fn of(profile: &Profile) -> Markup {
    let samples = profile.samples();
    let evicting = profile.stacks.iter().filter(|stack| stack.activity == Activity::EvictionCall);
    let in_evictions = evicting.fold(0, |sum: u64, stack| sum.saturating_add(stack.samples));
    let outside = samples.saturating_sub(in_evictions);
    html! {
        p {
            (grouped(samples)) " samples in "
            (duration(std::time::Duration::from_micros(profile.length_us)))
            ", " (profile.hz) " a second of CPU time"
            @if let Some(share) = profile.whole_share() {
                "; " (percent(share)) " of them are known up to the thread's start"
            }
            @if profile.lost > 0 { "; " (grouped(profile.lost)) " were lost" }
            "."
        }
        @if samples == 0 {
            p.note { "The main thread used no CPU time in it." }
        } @else {
            p {
                (grouped(in_evictions)) " samples (" (percent(in_evictions as f64 / samples as f64))
                ") are in evicting calls, and " (grouped(outside)) " are not."
            }
            (flames(profile, "Flame graph: in evicting calls", |ran| ran == Activity::EvictionCall))
            (flames(profile, "Flame graph: outside of evicting calls", |ran| ran != Activity::EvictionCall))
            h3 { "The functions that ran most" }
            (hottest_table(profile))
        }
    }
}

/// Draws the stacks of some activities. The drawing is an image, which keeps its styles and names to itself.
fn flames(profile: &Profile, title: &str, is_drawn: fn(Activity) -> bool) -> Markup {
    let mut part = profile.clone();
    part.stacks.retain(|stack| is_drawn(stack.activity));
    html! {
        @if let Some(drawn) = flame_graph(&part, None).transpose() {
            figure {
                figcaption {
                    strong { (title) }
                    " " span.note { "The wider a function, the more time; below it is what called it." }
                }
                @match drawn {
                    Ok(svg) => div.scroll {
                        img.flame alt={ (title) "; the table below says the same of the functions that ran most" }
                            src={ "data:image/svg+xml;base64," (BASE64_STANDARD.encode(svg)) };
                    },
                    Err(error) => p.note { "It cannot be drawn: " (error) },
                }
            }
        }
    }
}

/// The columns after the names of functions.
const COLUMNS: [&str; 3] = ["It ran itself", "On the stack, in evictions", "On the stack, outside"];

/// Returns the functions that ran most often, with how many samples each has in each of the [`COLUMNS`].
fn hottest(profile: &Profile) -> Vec<(&str, [u64; COLUMNS.len()])> {
    let mut all = vec![[0_u64; COLUMNS.len()]; profile.functions.len()];
    let mut add = |frame: u32, column: usize, samples| {
        if let Some(found) = all.get_mut(frame as usize) {
            found[column] = found[column].saturating_add(samples);
        }
    };
    for stack in &profile.stacks {
        let column = if stack.activity == Activity::EvictionCall { 1 } else { 2 };
        // A recursive function counts once.
        BTreeSet::from_iter(&stack.frames).into_iter().for_each(|frame| add(*frame, column, stack.samples));
        stack.frames.last().into_iter().for_each(|frame| add(*frame, 0, stack.samples));
    }
    let mut named: Vec<_> = profile.functions.iter().map(String::as_str).zip(all).collect();
    // By where the time went, not on whose behalf: `main` is in every stack.
    named.sort_by_key(|(name, [running, ..])| (std::cmp::Reverse(*running), *name));
    named.truncate(MOST);
    named.retain(|(_, [running, ..])| *running > 0);
    named
}

fn hottest_table(profile: &Profile) -> Markup {
    let all = profile.samples() as f64;
    let row = |(name, found): (&str, [u64; COLUMNS.len()])| {
        html! {
            td.text { code { (name) } }
            @for samples in found { td.number { (percent(samples as f64 / all)) } }
        }
    };
    let columns = Vec::from_iter([("Function", false)].into_iter().chain(COLUMNS.map(|name| (name, true))));
    table(None, Some("Shares of all samples."), &columns, hottest(profile).into_iter().map(row))
}

#[cfg(test)]
mod tests {
    use evictscope_records::fixture::burst_record;

    use super::hottest;

    #[test]
    fn functions_are_listed_by_the_time_that_they_ran() {
        let profile = burst_record().profile.unwrap_or_default();
        assert_eq!(hottest(&profile), [("dbGenericDelete", [270, 270, 0]), ("mgetCommand", [180, 0, 180])]);
    }
}
