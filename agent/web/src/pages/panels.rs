//! The charts of a server on one time axis: stalls, phases, its clients' waits, memory, client buffers, commands,
//! removed keys, and its main thread.

use evictscope_records::text::{bytes, count, seconds};
use evictscope_telemetry::{ClientBuffers, Moment, microseconds};
use maud::{Markup, html};

use super::chart::{Chart, ChartSeries, Shapes, stacked};
use super::columns::Columns;
use super::drawing::Ink;
use super::strips;
use super::text::percent;

/// Draws all of them. `columns` are made from `moments`.
pub fn all(moments: &[Moment], columns: &Columns) -> Markup {
    let waiting = columns.highest(|moment| moment.clients_waiting);
    let waits = columns.highest(|moment| moment.longest_wait.map(microseconds)).into_iter();
    let waits = waits.map(|us| Some(us? / 1e6)).collect();
    let commands = columns.per_second(|moment| moment.commands);
    let evicted = columns.per_second(|moment| moment.evicted_keys);
    let expired = columns.per_second(|moment| moment.expired_keys);
    let charts = [
        up_from_zero("Clients waiting", vec![ChartSeries::new("whose request waits", Ink::Red, waiting)], 1.0, count),
        up_from_zero(
            "Longest wait",
            vec![ChartSeries::new("of the oldest request that waits", Ink::Red, waits)],
            0.001,
            seconds,
        ),
        memory(columns),
        client_buffers(columns),
        up_from_zero("Commands a second", vec![ChartSeries::new("answered", Ink::Blue, commands)], 1.0, count),
        up_from_zero(
            "Keys removed a second",
            vec![ChartSeries::new("evicted", Ink::Red, evicted), ChartSeries::new("expired", Ink::Green, expired)],
            1.0,
            count,
        ),
        main_thread(columns),
    ];
    html! {
        p.note { "Each column is " (seconds(columns.width_us() / 1e6)) ". The tinted time is that of evictions." }
        (strips::stalls(moments, columns.span))
        (strips::phases(columns))
        @for chart in charts { (chart.figure(columns)) }
    }
}

fn extent<'a>(values: impl Iterator<Item = &'a Option<f64>>) -> Option<(f64, f64)> {
    values.flatten().fold(None, |extent, value| {
        let (low, high) = extent.unwrap_or((*value, *value));
        Some((low.min(*value), high.max(*value)))
    })
}

/// Returns the power of 1,024 that numbers of this size are written in.
fn unit_of(bytes: f64) -> f64 {
    [4, 3, 2, 1].map(|power| 1_024.0_f64.powi(power)).into_iter().find(|unit| bytes >= *unit).unwrap_or(1.0)
}

fn memory(columns: &Columns) -> Chart {
    let used = columns.highest(|moment| moment.used_memory);
    let limit = columns.each(|moments| {
        let limit = moments.iter().rev().find_map(|moment| moment.maxmemory)?;
        (limit > 0).then_some(limit as f64)
    });
    // The interesting part is narrow: memory that falls by a tenth has fallen a lot.
    let (low, high) = extent(used.iter().chain(&limit)).unwrap_or((0.0, 1.0));
    let margin = ((high - low) * 0.15).max(high * 0.005).max(1.0);
    let from = (low - margin).max(0.0);
    Chart {
        title: "Memory",
        note: (from > 0.0).then_some("The axis does not begin at 0."),
        shapes: Shapes::Lines(vec![
            ChartSeries::new("maxmemory", Ink::Orange, limit),
            ChartSeries::new("used memory", Ink::Blue, used),
        ]),
        values: from..high + margin,
        label: bytes,
        unit: unit_of(high - low),
    }
}

fn client_buffers(columns: &Columns) -> Chart {
    // From the moment with the largest total.
    let buffers = columns.each(|moments| {
        let buffers = moments.iter().rev().filter_map(|moment| moment.client_buffers);
        buffers.max_by_key(|buffers| buffers.total())
    });
    let class = |name, ink, of: fn(&ClientBuffers) -> u64| {
        ChartSeries::new(name, ink, buffers.iter().map(|buffers| Some(of(buffers.as_ref()?) as f64)).collect())
    };
    let not_counted = columns.highest(|moment| moment.not_counted);
    let mut shown = vec![
        class("normal", Ink::Blue, |buffers| buffers.normal),
        class("replica", Ink::Orange, |buffers| buffers.replica),
        class("pubsub", Ink::Green, |buffers| buffers.pubsub),
        class("primary", Ink::Teal, |buffers| buffers.primary),
        ChartSeries::new("not counted (replication and AOF)", Ink::Grey, not_counted),
    ];
    // Most servers have only one class of clients.
    let is_empty = |series: &ChartSeries| !series.values.iter().flatten().any(|bytes| *bytes > 0.0);
    shown.retain(|series| series.name == "normal" || !is_empty(series));
    let most = (1..=shown.len()).flat_map(|height| stacked(&shown[..height])).flatten().fold(0.0, f64::max);
    Chart {
        title: "Client buffers by class",
        note: (shown.len() > 1).then_some("From the bottom up, in this order."),
        shapes: Shapes::Areas(shown),
        values: 0.0..(most * 1.15).max(1_024.0),
        label: bytes,
        unit: unit_of(most),
    }
}

/// Returns a chart of lines whose axis begins at 0 and ends at `least` or higher.
fn up_from_zero(title: &'static str, all: Vec<ChartSeries>, least: f64, label: fn(f64) -> String) -> Chart {
    let (_, most) = extent(all.iter().flat_map(|series| &series.values)).unwrap_or((0.0, 0.0));
    Chart { title, note: None, shapes: Shapes::Lines(all), values: 0.0..(most * 1.15).max(least), label, unit: 1.0 }
}

fn main_thread(columns: &Columns) -> Chart {
    let cpu = columns.share(|moment| moment.cpu);
    let cycles = columns.share(|moment| moment.expiring);
    let evicting = columns.evicting();
    // Evicting calls and expire cycles are timed by wall clock, and may have waited for a CPU.
    let shares = cpu.iter().zip(&evicting).zip(&cycles).map(|((cpu, evicting), cycles)| {
        let evicting = evicting.zip(*cpu).map(|(share, cpu)| share.min(cpu));
        let left = cpu.map(|cpu| cpu - evicting.unwrap_or(0.0));
        let expiring = cycles.zip(left).map(|(share, left)| share.min(left).max(0.0));
        let known = evicting.unwrap_or(0.0) + expiring.unwrap_or(0.0);
        (evicting, (expiring, cpu.map(|cpu| (cpu - known).max(0.0))))
    });
    let (evictions, (expiring, rest)): (Vec<_>, (Vec<_>, Vec<_>)) = shares.unzip();
    let rest_where = |is_observed: bool| {
        let rest = rest.iter().zip(&evicting);
        rest.map(|(rest, evicting)| rest.filter(|_| evicting.is_some() == is_observed)).collect::<Vec<_>>()
    };
    let mut all = vec![ChartSeries::new("evictions", Ink::Red, evictions)];
    let mut other = "other";
    if expiring.iter().any(Option::is_some) {
        all.push(ChartSeries::new("expire cycles", Ink::Green, expiring))
    } else {
        other = "other, with expire cycles"
    }
    all.push(ChartSeries::new(other, Ink::Blue, rest_where(true)));
    let unobserved = rest_where(false);
    if unobserved.iter().any(Option::is_some) {
        all.push(ChartSeries::new("on a CPU while evictions were not observed", Ink::Grey, unobserved));
    }
    let waiting = columns.share(|moment| moment.waiting);
    if waiting.iter().flatten().any(|share| *share > 0.001) {
        all.push(ChartSeries::new("waiting for a CPU", Ink::Teal, waiting));
    }
    Chart {
        title: "Main thread",
        note: Some("Share of the time, from the bottom up."),
        shapes: Shapes::Areas(all),
        values: 0.0..1.2,
        label: percent,
        unit: 0.01,
    }
}
