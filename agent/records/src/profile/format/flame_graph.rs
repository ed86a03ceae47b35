//! Flame graphs, drawn by inferno.

use std::io;

use inferno::flamegraph::{self, Options};

use super::folded::folded;
use super::without_script::without_script;
use crate::profile::{Activity, Profile};

/// What to draw.
#[derive(Clone, Debug)]
pub struct Drawing<'a> {
    /// Only the stacks in which this ran; all if it is `None`.
    pub which: Option<Activity>,
    /// What to write above it, if it is a file of its own.
    pub title: &'a str,
    /// Whether it is a file of its own: with a title and a background, and a script that zooms and searches. In a page
    /// it has none of these, and no styles: browsers show it the same in light and dark, under any security policy.
    pub is_file: bool,
}

/// Draws a profile as SVG. Returns `None` if it has no such stack.
///
/// # Errors
///
/// Fails if it cannot be drawn.
pub fn flame_graph(profile: &Profile, drawing: &Drawing<'_>) -> io::Result<Option<String>> {
    let folded = folded(profile, drawing.which);
    if folded.is_empty() {
        return Ok(None);
    }
    let mut options = Options::default();
    options.title = drawing.title.to_owned();
    options.count_name = "samples".to_owned();
    // The same function always has the same colour.
    options.hash = true;
    options.no_javascript = !drawing.is_file;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    match drawing.is_file {
        true => Ok(Some(svg)),
        false => without_script(&svg).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::{Drawing, flame_graph};
    use crate::profile::{Activity, Profile, Stack};

    fn profile(name: &str) -> Profile {
        Profile {
            functions: vec!["main".to_owned(), name.to_owned()],
            stacks: vec![Stack {
                frames: vec![0, 1],
                activity: Activity::Other,
                is_whole: true,
                samples: 4,
                at_ms: Vec::new(),
            }],
            ..Profile::default()
        }
    }

    #[test]
    fn a_page_gets_frames_alone_and_names_as_text() -> anyhow::Result<()> {
        let mut drawing = Drawing { which: None, title: "</title><script>", is_file: false };
        let hostile = "<script>alert(1)</script>\" onload=\"x";
        let drawn = flame_graph(&profile(hostile), &drawing)?.unwrap_or_default();
        for absent in ["<script", "<style", "onload=\"", "<?xml", "<!", "url("] {
            assert!(!drawn.contains(absent), "{absent} in {drawn}");
        }
        assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>"), "{drawn}");
        assert!(drawn.contains("main (4 samples, 100.00%)"), "{drawn}");
        drawing.is_file = true;
        let file = flame_graph(&profile(hostile), &drawing)?.unwrap_or_default();
        assert!(!file.contains("alert(1)</script>") && !file.contains("<title></title>"));
        drawing.which = Some(Activity::EvictionCall);
        assert!(flame_graph(&profile("x"), &drawing)?.is_none());
        Ok(())
    }
}
