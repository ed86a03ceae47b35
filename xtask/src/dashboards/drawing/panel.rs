//! A dashboard as its JSON has it, as far as it is drawn.

use plotters::style::RGBColor;
use serde::Deserialize;
use serde_json::Value;

use super::super::{monitor::Series, recording::Recording};

/// What is written, and lines in the colour of text.
pub const INK: RGBColor = RGBColor(36, 41, 46);
/// For series that have no colour of their own: the beginning of Grafana's palette.
const PALETTE: [&str; 6] = ["green", "yellow", "blue", "orange", "red", "purple"];

#[derive(Deserialize)]
pub struct Dashboard {
    pub title: String,
    pub panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub grid_pos: Place,
    pub targets: Vec<Target>,
    pub field_config: FieldConfig,
    pub options: Value,
    #[serde(default)]
    pub transformations: Vec<Value>,
}

/// In cells of a grid of 24 columns.
#[derive(Deserialize)]
pub struct Place {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub ref_id: String,
    pub legend_format: String,
    #[serde(default)]
    pub instant: bool,
}

#[derive(Deserialize)]
pub struct FieldConfig {
    pub defaults: Value,
    pub overrides: Vec<Override>,
}

#[derive(Deserialize)]
pub struct Override {
    matcher: Value,
    properties: Vec<Value>,
}

impl Override {
    /// Whether it is about this field: by its name, or by a pattern such as `.* threads`.
    fn is_of(&self, field: &str) -> bool {
        let matching = self.matcher["options"].as_str().unwrap_or("");
        match matching.strip_prefix(".*") {
            Some(end) => field.ends_with(end),
            None => field == matching,
        }
    }
}

/// What a panel draws, with where and of what.
pub struct Content<'a> {
    pub dashboard: &'a str,
    pub panel: &'a Panel,
    pub recording: &'a Recording,
    /// When bursts began, seconds since 1970.
    pub marks: &'a [f64],
}

/// A series with its name in the legend.
pub struct Named<'a> {
    pub name: String,
    pub series: &'a Series,
}

impl Content<'_> {
    /// The answer to one of its queries.
    pub fn answer(&self, target: &Target) -> &[Series] {
        self.recording
            .answer(self.dashboard, &self.panel.title, &target.ref_id)
    }

    /// All series of all queries.
    pub fn series(&self) -> Vec<Named<'_>> {
        let targets = self.panel.targets.iter();
        let all = targets.flat_map(|target| {
            self.answer(target).iter().map(|series| Named {
                name: legend(&target.legend_format, series),
                series,
            })
        });
        all.filter(|named| !named.series.points.is_empty())
            .collect()
    }

    /// The time range.
    pub fn times(&self) -> std::ops::Range<f64> {
        self.recording.start..self.recording.end
    }
}

impl Panel {
    /// A property of a field, such as `custom.fillOpacity`: its override, or what holds for all.
    pub fn property(&self, field: &str, id: &str) -> Option<&Value> {
        let of_field = |one: &&Override| one.is_of(field);
        let overrides = self.field_config.overrides.iter().filter(of_field);
        overrides
            .flat_map(|one| &one.properties)
            .find(|property| property["id"] == id)
            .map(|property| &property["value"])
            .or_else(|| {
                let pointer = format!("/{}", id.replace('.', "/"));
                self.field_config.defaults.pointer(&pointer)
            })
    }

    /// A property that is a number.
    pub fn number(&self, field: &str, id: &str) -> Option<f64> {
        self.property(field, id)?.as_f64()
    }

    /// The unit of a field.
    pub fn unit(&self, field: &str) -> &str {
        let unit = self.property(field, "unit").and_then(Value::as_str);
        unit.unwrap_or("none")
    }

    /// The colour of a series, which is the one at `index`.
    pub fn colour(&self, field: &str, index: usize) -> RGBColor {
        let fixed = self.property(field, "color");
        let fixed = fixed.and_then(|colour| colour["fixedColor"].as_str());
        colour(fixed.unwrap_or(PALETTE[index % PALETTE.len()]))
    }

    /// The thresholds of a field, ascending: from which value on, and its colour.
    pub fn thresholds(&self, field: &str) -> Vec<(Option<f64>, RGBColor)> {
        let steps = self.property(field, "thresholds");
        let steps = steps.and_then(|value| value["steps"].as_array());
        let steps = steps.into_iter().flatten();
        steps
            .map(|step| {
                let name = step["color"].as_str().unwrap_or("text");
                (step["value"].as_f64(), colour(name))
            })
            .collect()
    }

    /// The colour that the thresholds of a field give a value.
    pub fn threshold_colour(&self, field: &str, value: f64) -> RGBColor {
        let steps = self.thresholds(field);
        let reached = steps
            .iter()
            .rev()
            .find(|(from, _)| from.is_none_or(|from| value >= from));
        reached.map_or(INK, |(_, colour)| *colour)
    }

    /// The text and colour that a value is mapped to, if it is.
    pub fn mapped(&self, field: &str, value: &str) -> Option<(String, RGBColor)> {
        let mappings = self.property(field, "mappings")?.as_array()?;
        let to = mappings
            .iter()
            .find_map(|mapping| mapping["options"].get(value))?;
        let name = to["color"].as_str().unwrap_or("text");
        Some((to["text"].as_str()?.to_owned(), colour(name)))
    }
}

fn colour(name: &str) -> RGBColor {
    match name {
        "green" => RGBColor(86, 166, 75),
        "yellow" => RGBColor(204, 157, 0),
        "blue" => RGBColor(50, 116, 217),
        "orange" => RGBColor(235, 104, 16),
        "red" => RGBColor(224, 47, 68),
        "purple" => RGBColor(143, 59, 184),
        _ => INK,
    }
}

/// A legend such as `{{instance}} {{server}}` with the labels of a series; as in Grafana, those that it
/// has not got are empty.
fn legend(format: &str, series: &Series) -> String {
    let mut text = String::new();
    for (index, part) in format.split("{{").enumerate() {
        let (label, rest) = match index {
            0 => ("", part),
            _ => part.split_once("}}").unwrap_or(("", part)),
        };
        text += series.labels.get(label).map_or("", String::as_str);
        text += rest;
    }
    text.trim().to_owned()
}
