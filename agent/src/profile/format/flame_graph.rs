//! Flame graphs, drawn by inferno.

use std::io;

use inferno::flamegraph::{self, Options};

use super::folded::folded;
use crate::profile::{Activity, Profile};

/// What to draw.
#[derive(Clone, Debug)]
pub struct Drawing<'a> {
    /// Only the stacks in which this ran; all where it is `None`.
    pub which: Option<Activity>,
    /// What to write above it.
    pub title: &'a str,
    /// Whether it may have a script, which zooms and searches. Pages have none.
    pub has_script: bool,
}

/// Draws a profile as SVG. Returns `None` where it has no such stack.
///
/// # Errors
///
/// Fails where it cannot be drawn.
pub fn flame_graph(profile: &Profile, drawing: &Drawing<'_>) -> io::Result<Option<String>> {
    let folded = folded(profile, drawing.which);
    if folded.is_empty() {
        return Ok(None);
    }
    let mut options = Options::default();
    options.title = drawing.title.to_owned();
    options.count_name = "samples".to_owned();
    options.hash = true;
    options.no_javascript = !drawing.has_script;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)?;
    String::from_utf8(svg).map(Some).map_err(io::Error::other)
}
