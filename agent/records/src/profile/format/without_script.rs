//! Reduces inferno's drawing to its frames, for a page.

use std::io;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, Writer};

/// Elements that are left out with everything in them. Inferno's elements with an `id` other than `frames` belong to
/// the script and to the title.
const LEFT_OUT: [&[u8]; 3] = [b"defs", b"style", b"script"];

/// Returns a drawing by inferno, or a page's own, without scripts, styles, title and background. Attributes replace the
/// styles of the text: every browser accepts them under every policy.
///
/// # Errors
///
/// Fails if it is not XML.
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
    let name = std::str::from_utf8(name.as_ref()).map_err(io::Error::other)?;
    let mut kept = BytesStart::new(name.to_owned());
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
