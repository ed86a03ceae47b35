//! A panel as the dashboard's JSON describes it, as far as it is drawn.

use std::ops::Range;

use plotters::style::{RGBColor, WHITE};
use serde::Deserialize;
use serde_json::Value;

use crate::{Series, canvas::INK};

/// The colours of series that have none of their own: the beginning of Grafana's palette.
const PALETTE: [&str; 6] = ["green", "yellow", "blue", "orange", "red", "purple"];

/// What is in the grid of a dashboard.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Item {
    Row(Row),
    Panel(Panel),
}

impl Item {
    /// Returns the row of the grid below it.
    pub fn bottom(&self) -> u32 {
        let at = match self {
            Self::Row(row) => &row.at,
            Self::Panel(panel) => &panel.at,
        };
        at.y + at.h
    }
}

/// A row of panels that folds.
#[derive(Deserialize)]
pub struct Row {
    pub title: String,
    #[serde(rename = "gridPos")]
    pub at: Place,
    pub panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "gridPos")]
    pub at: Place,
    pub targets: Vec<Target>,
    field_config: FieldConfig,
    pub options: Value,
    #[serde(default)]
    pub transformations: Vec<Value>,
}

/// Where a panel is, in cells of a grid of 24 columns.
#[derive(Deserialize)]
pub struct Place {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

/// One query.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    #[serde(rename = "refId")]
    pub letter: String,
    legend_format: String,
    #[serde(default)]
    pub instant: bool,
}

#[derive(Deserialize)]
struct FieldConfig {
    defaults: Value,
    overrides: Vec<Override>,
}

#[derive(Deserialize)]
struct Override {
    matcher: Value,
    properties: Vec<Value>,
}

impl Override {
    /// Returns whether it is about the field of this name.
    fn is_of(&self, field: &str) -> bool {
        self.matcher["options"] == field
    }
}

/// A panel and what it shows.
pub struct Content<'a> {
    pub panel: &'a Panel,
    /// The series of all its queries.
    pub series: Vec<Named<'a>>,
    /// The time range, in seconds since 1970.
    pub times: Range<f64>,
    /// From one point to the next, in seconds.
    pub step: f64,
    /// When bursts began, in seconds since 1970.
    pub marks: &'a [f64],
}

/// A series with its name in the legend, and the query that it answers.
pub struct Named<'a> {
    pub name: String,
    pub series: &'a Series,
    pub target: &'a Target,
}

impl Panel {
    /// Returns all series that have points, among the answers to its queries.
    pub fn series<'a>(&'a self, answer: impl Fn(&str) -> &'a [Series]) -> Vec<Named<'a>> {
        let targets = self.targets.iter();
        let all = targets.flat_map(|target| {
            let named = |series| Named {
                name: legend(&target.legend_format, series),
                series,
                target,
            };
            answer(&target.letter).iter().map(named)
        });
        all.filter(|named| !named.series.points.is_empty())
            .collect()
    }

    /// Returns a property of a field, such as `custom.fillOpacity`: its override, or else the default.
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

    /// Returns a property that is a number.
    pub fn number(&self, field: &str, id: &str) -> Option<f64> {
        self.property(field, id)?.as_f64()
    }

    /// Returns the unit of a field.
    pub fn unit(&self, field: &str) -> &str {
        let unit = self.property(field, "unit").and_then(Value::as_str);
        unit.unwrap_or("none")
    }

    /// Returns the colour of a series, which is the one at `index`.
    pub fn colour(&self, field: &str, index: usize) -> RGBColor {
        let fixed = self.property(field, "color");
        let fixed = fixed.and_then(|colour| colour["fixedColor"].as_str());
        colour(fixed.unwrap_or(PALETTE[index % PALETTE.len()]))
    }

    /// Returns the thresholds of a field, ascending: the value at which one begins, and its colour.
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

    /// Returns the colour that the thresholds of a field give a value.
    pub fn threshold_colour(&self, field: &str, value: f64) -> RGBColor {
        let steps = self.thresholds(field).into_iter().rev();
        let mut reached = steps.filter(|(from, _)| from.is_none_or(|from| value >= from));
        reached.next().map_or(INK, |(_, colour)| colour)
    }

    /// Returns the text and the colour that a value of a field is mapped to.
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
        "dark-red" => RGBColor(150, 10, 30),
        "panel-bg" => WHITE,
        "purple" => RGBColor(143, 59, 184),
        _ => INK,
    }
}

/// Fills the labels of a series into a legend such as `{{instance}} {{server}}`. As in Grafana, a label
/// that it lacks is empty.
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
