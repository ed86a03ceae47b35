//! The charts of a server on one axis of time: what its clients waited, then phases, memory, client buffers, commands, and its
//! main thread.

use evictscope_records::text::{bytes, count, seconds};
use evictscope_telemetry::Moment;
use maud::{Markup, html};

use super::chart::{Chart, Ink, Series, Shapes, phase_strip};
use super::columns::{Column, Columns};
use super::stall_strip::strip;
use super::times::percent;

/// Readings are a tenth of a second apart while a server does not evict, and some are late: a shorter column may have none.
pub const LEAST_COLUMN_US: u64 = 200_000;
/// More could not be told apart.
pub const MOST_COLUMNS: usize = 800;
/// The height of a chart.
const HEIGHT: u32 = 110;

/// Draws all of them. The columns are of these moments.
pub fn all(moments: &[Moment], columns: &Columns) -> Markup {
    html! {
        (strip(moments, columns.span))
        (phase_strip(columns))
        (clients_waiting(columns).figure(columns))
        (longest_wait(columns).figure(columns))
        (memory(columns).figure(columns))
        (client_buffers(columns).figure(columns))
        (commands(columns).figure(columns))
        (keys(columns).figure(columns))
        (main_thread(columns).figure(columns))
    }
}

/// Returns one value of each column.
fn values(columns: &Columns, value: impl Fn(&Column) -> Option<f64>) -> Vec<Option<f64>> {
    columns.all.iter().map(value).collect()
}

/// Returns the lowest and the highest of the known values.
fn extent<'a>(values: impl Iterator<Item = &'a Option<f64>>) -> Option<(f64, f64)> {
    values.flatten().fold(None, |extent, value| {
        let (low, high) = extent.unwrap_or((*value, *value));
        Some((low.min(*value), high.max(*value)))
    })
}

/// Returns the power of 1,024 that numbers of this size are written in.
fn unit_of(bytes: f64) -> f64 {
    [4, 3, 2, 1]
        .map(|power| 1_024.0_f64.powi(power))
        .into_iter()
        .find(|unit| bytes >= *unit)
        .unwrap_or(1.0)
}

fn memory(columns: &Columns) -> Chart {
    let used = values(columns, |column| Some(column.used_memory?.1 as f64));
    let limit = values(columns, |column| {
        let limit = column.maxmemory?;
        (limit > 0).then_some(limit as f64)
    });
    // The interesting part is narrow: memory that falls by a tenth has fallen a lot.
    let (low, high) = extent(used.iter().chain(&limit)).unwrap_or((0.0, 1.0));
    let margin = ((high - low) * 0.15).max(high * 0.005).max(1.0);
    Chart {
        title: "Memory",
        note: Some("The axis does not begin at 0.".to_owned()),
        shapes: Shapes::Lines(vec![
            Series {
                name: "maxmemory".to_owned(),
                ink: Ink::Orange,
                values: limit,
            },
            Series {
                name: "used memory".to_owned(),
                ink: Ink::Blue,
                values: used,
            },
        ]),
        values: (low - margin).max(0.0)..high + margin,
        label: bytes,
        unit: unit_of(high - low),
        height: HEIGHT,
    }
}

fn client_buffers(columns: &Columns) -> Chart {
    type Of = fn(&Column) -> Option<u64>;
    let class = |of: Of| values(columns, |column| Some(of(column)? as f64));
    let classes: [(&str, Ink, Of); 5] = [
        ("normal", Ink::Blue, |column| {
            Some(column.client_buffers?.normal)
        }),
        ("replica", Ink::Orange, |column| {
            Some(column.client_buffers?.replica)
        }),
        ("pubsub", Ink::Green, |column| {
            Some(column.client_buffers?.pubsub)
        }),
        ("primary", Ink::Teal, |column| {
            Some(column.client_buffers?.primary)
        }),
        ("not counted (replication and AOF)", Ink::Grey, |column| {
            column.not_counted
        }),
    ];
    let all = classes.map(|(name, ink, of)| Series {
        name: name.to_owned(),
        ink,
        values: class(of),
    });
    // Most servers have only one class of clients.
    let is_shown = |series: &Series| {
        series.name == "normal" || series.values.iter().flatten().any(|bytes| *bytes > 0.0)
    };
    let shown: Vec<_> = all.into_iter().filter(is_shown).collect();
    let most = highest_stack(&shown);
    Chart {
        title: "Client buffers by class",
        note: (shown.len() > 1).then(|| "From the bottom up, in this order.".to_owned()),
        shapes: Shapes::Areas(shown),
        values: 0.0..(most * 1.15).max(1_024.0),
        label: bytes,
        unit: unit_of(most),
        height: HEIGHT,
    }
}

/// Returns the highest sum of areas that are drawn on top of each other.
fn highest_stack(all: &[Series]) -> f64 {
    let columns = all.first().map_or(0, |series| series.values.len());
    let sums = (0..columns).map(|column| {
        let values = all.iter().filter_map(|series| *series.values.get(column)?);
        values.sum()
    });
    sums.fold(0.0, f64::max)
}

fn rates(title: &'static str, all: Vec<Series>) -> Chart {
    up_from_zero(title, all, 1.0, count)
}

/// Returns a chart of lines whose axis begins at 0 and ends at `least` or higher.
fn up_from_zero(
    title: &'static str,
    all: Vec<Series>,
    least: f64,
    label: fn(f64) -> String,
) -> Chart {
    let (_, most) = extent(all.iter().flat_map(|series| &series.values)).unwrap_or((0.0, 0.0));
    Chart {
        title,
        note: None,
        shapes: Shapes::Lines(all),
        values: 0.0..(most * 1.15).max(least),
        label,
        unit: 1.0,
        height: HEIGHT,
    }
}

fn clients_waiting(columns: &Columns) -> Chart {
    let waiting = Series {
        name: "whose request waits".to_owned(),
        ink: Ink::Red,
        values: values(columns, |column| Some(column.clients_waiting? as f64)),
    };
    up_from_zero("Clients waiting", vec![waiting], 1.0, count)
}

fn longest_wait(columns: &Columns) -> Chart {
    let oldest = Series {
        name: "of the oldest request that waits".to_owned(),
        ink: Ink::Red,
        values: values(columns, |column| Some(column.longest_wait_us? as f64 / 1e6)),
    };
    up_from_zero("Longest wait", vec![oldest], 0.001, seconds)
}

fn commands(columns: &Columns) -> Chart {
    let series = Series {
        name: "answered".to_owned(),
        ink: Ink::Blue,
        values: values(columns, |column| column.commands),
    };
    rates("Commands a second", vec![series])
}

fn keys(columns: &Columns) -> Chart {
    let evicted = Series {
        name: "evicted".to_owned(),
        ink: Ink::Red,
        values: values(columns, |column| column.evicted),
    };
    let expired = Series {
        name: "expired".to_owned(),
        ink: Ink::Green,
        values: values(columns, |column| column.expired),
    };
    rates("Keys removed a second", vec![evicted, expired])
}

fn main_thread(columns: &Columns) -> Chart {
    // Evicting calls and expire cycles are timed by the clock, and may have waited for a CPU in between.
    let evicting = |column: &Column| Some(column.evicting?.min(column.cpu?));
    let expiring = |column: &Column| {
        let left = column.cpu? - evicting(column).unwrap_or(0.0);
        Some(column.expiring?.min(left).max(0.0))
    };
    let rest = |column: &Column| {
        let known = evicting(column).unwrap_or(0.0) + expiring(column).unwrap_or(0.0);
        Some((column.cpu? - known).max(0.0))
    };
    let series = |name: &str, ink, values| Series {
        name: name.to_owned(),
        ink,
        values,
    };
    let mut all = vec![series("evictions", Ink::Red, values(columns, evicting))];
    let mut other = "other";
    let expire_cycles = values(columns, expiring);
    match expire_cycles.iter().any(Option::is_some) {
        true => all.push(series("expire cycles", Ink::Green, expire_cycles)),
        false => other = "other, with expire cycles",
    }
    let observed = values(columns, |column| {
        column.evicting?;
        rest(column)
    });
    all.push(series(other, Ink::Blue, observed));
    let unobserved = values(columns, |column| match column.evicting {
        Some(_) => None,
        None => rest(column),
    });
    if unobserved.iter().any(Option::is_some) {
        let name = "on a CPU while evictions were not observed";
        all.push(series(name, Ink::Grey, unobserved));
    }
    let waiting = values(columns, |column| column.waiting);
    if waiting.iter().flatten().any(|share| *share > 0.001) {
        all.push(series("waiting for a CPU", Ink::Teal, waiting));
    }
    Chart {
        title: "Main thread",
        note: Some("Share of the time, from the bottom up.".to_owned()),
        shapes: Shapes::Areas(all),
        values: 0.0..1.2,
        label: percent,
        unit: 0.01,
        height: HEIGHT,
    }
}

/// Returns what a column of these charts is, in words.
pub fn resolution(columns: &Columns) -> String {
    let width = columns.width_us() / 1e6;
    format!(
        "Each column is {}.",
        evictscope_records::text::seconds(width)
    )
}
