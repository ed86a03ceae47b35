//! The series about the phases and bursts of one server. A server whose evicting calls cannot be
//! told from others, or whose plan was withdrawn, has none.

use prometheus::proto::Metric;

use super::proto::{Unit, counter, gauge, histogram};
use super::server::ExportedServer;
use crate::telemetry::{BurstKind, BurstTotals, HistogramTotals, Phase};

pub(super) fn phase(server: &ExportedServer) -> Vec<Metric> {
    by_phase(server, |phase, labels| {
        let is_on = server.cycle().is_some_and(|cycle| cycle.phase() == phase);
        gauge(server, labels, f64::from(u8::from(is_on)))
    })
}

pub(super) fn phase_seconds(server: &ExportedServer) -> Vec<Metric> {
    by_phase(server, |phase, labels| {
        let seconds = server.cycle().map(|cycle| cycle.time(phase).as_secs_f64());
        counter(server, labels, seconds.unwrap_or(0.0))
    })
}

pub(super) fn phase_entries(server: &ExportedServer) -> Vec<Metric> {
    by_phase(server, |phase, labels| {
        let entries = server.cycle().map(|cycle| cycle.entries(phase));
        counter(server, labels, entries.unwrap_or(0) as f64)
    })
}

fn by_phase(
    server: &ExportedServer,
    series: impl Fn(Phase, &[(&str, &str)]) -> Metric,
) -> Vec<Metric> {
    if server.cycle().is_none() {
        return Vec::new();
    }
    Phase::ALL
        .map(|phase| series(phase, &[("phase", &phase.to_string())]))
        .into()
}

pub(super) fn bursts(server: &ExportedServer) -> Vec<Metric> {
    let Some(cycle) = server.cycle() else {
        return Vec::new();
    };
    BurstKind::ALL
        .map(|kind| {
            let finished = cycle.totals().finished(kind);
            counter(server, &[("kind", &kind.to_string())], finished as f64)
        })
        .into()
}

/// One of the histograms over finished bursts.
pub(super) fn burst_histogram(
    server: &ExportedServer,
    of: fn(&BurstTotals) -> &HistogramTotals,
    unit: Unit,
) -> Vec<Metric> {
    let totals = server.cycle().map(|cycle| of(cycle.totals()));
    totals
        .map(|totals| histogram(server, &[], totals, unit))
        .into_iter()
        .collect()
}

pub(super) fn last_burst_start(server: &ExportedServer) -> Vec<Metric> {
    let start = server.cycle().and_then(|cycle| cycle.totals().last_start);
    start
        .map(|start| gauge(server, &[], start.as_secs_f64()))
        .into_iter()
        .collect()
}
