//! Flame graphs, drawn by inferno, and reduced to their frames for a page.

use std::io;

use inferno::flamegraph::{self, Options};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, Writer};

use super::folded::folded;
use crate::profile::Profile;

/// Draws a profile as SVG: with a title, as a file of its own, which has a background, and a script that zooms and
/// searches. For a page it has none of these, and no styles: browsers show it the same in light and dark, under any
/// security policy. Returns `None` if there is no stack. Fails if it cannot be drawn.
pub fn flame_graph(profile: &Profile, title: Option<&str>) -> io::Result<Option<String>> {
    let folded = folded(profile);
    if folded.is_empty() {
        return Ok(None);
    }
    let mut options = Options::default();
    options.title = title.unwrap_or("Flame graph").to_owned();
    options.count_name = "samples".to_owned();
    // The same function always has the same colour.
    options.hash = true;
    options.no_javascript = title.is_none();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    if title.is_some() { Ok(Some(svg)) } else { without_script(&svg).map(Some) }
}

/// Elements that are left out with everything in them. Inferno's elements with an `id` other than `frames` belong to
/// the script and to the title.
const LEFT_OUT: [&[u8]; 3] = [b"defs", b"style", b"script"];

/// Returns a drawing by inferno, or a page's own, without scripts, styles, title and background. Attributes replace the
/// styles of the text: every browser accepts them under every policy. Fails if it is not XML.
pub fn without_script(svg: &str) -> io::Result<String> {
    let mut reader = Reader::from_str(svg);
    let mut writer = Writer::new(Vec::new());
    // How deep in an element that is left out.
    let mut inside = 0_u32;
    loop {
        let event = reader.read_event().map_err(io::Error::other)?;
        match event {
            Event::Eof => break,
            Event::Start(_) if inside > 0 => inside += 1,
            Event::Start(element) if is_left_out(&element) => inside = 1,
            Event::Start(element) => writer.write_event(Event::Start(kept(&element)?))?,
            Event::End(_) if inside > 0 => inside -= 1,
            Event::Empty(element) if inside == 0 && !is_left_out(&element) => {
                writer.write_event(Event::Empty(kept(&element)?))?;
            }
            event @ (Event::Text(_) | Event::GeneralRef(_) | Event::End(_)) if inside == 0 => {
                writer.write_event(event)?;
            }
            _ => {}
        }
    }
    String::from_utf8(writer.into_inner()).map_err(io::Error::other)
}

fn is_left_out(element: &BytesStart<'_>) -> bool {
    let is = |name: &str, wanted: fn(&[u8]) -> bool| {
        let found = element.try_get_attribute(name);
        found.is_ok_and(|found| found.is_some_and(|found| wanted(&found.value)))
    };
    LEFT_OUT.contains(&element.name().as_ref())
        || is("id", |id| id != b"frames")
        || is("fill", |fill| fill.starts_with(b"url("))
}

/// Returns an element with the font in place of what calls a script.
fn kept(element: &BytesStart<'_>) -> io::Result<BytesStart<'static>> {
    let name = element.name();
    let mut kept = BytesStart::new(std::str::from_utf8(name.as_ref()).map_err(io::Error::other)?.to_owned());
    for attribute in element.attributes() {
        let attribute = attribute.map_err(io::Error::other)?;
        if attribute.key.as_ref() == b"onload" {
            kept.push_attribute(("font-family", "monospace"));
            kept.push_attribute(("font-size", "12"));
        } else {
            kept.push_attribute(attribute);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::flame_graph;
    use crate::fixture::stack;
    use crate::profile::Profile;

    #[test]
    fn a_page_gets_frames_alone_and_names_as_text() -> anyhow::Result<()> {
        let functions = ["main", "<script>alert(1)</script>\" onload=\"x"].map(str::to_owned).to_vec();
        let profile = Profile { functions, stacks: vec![stack(&[0, 1], true, 4)], ..Profile::default() };
        let drawn = flame_graph(&profile, None)?.unwrap_or_default();
        for absent in ["<script", "<style", "onload=\"", "<?xml", "<!", "url("] {
            assert!(!drawn.contains(absent), "{absent} in {drawn}");
        }
        assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>"), "{drawn}");
        assert!(drawn.contains("main (4 samples, 100.00%)"), "{drawn}");
        let file = flame_graph(&profile, Some("</title><script>"))?.unwrap_or_default();
        assert!(!file.contains("alert(1)</script>") && !file.contains("<title></title>"));
        assert!(flame_graph(&Profile::default(), None)?.is_none());
        Ok(())
    }
}
