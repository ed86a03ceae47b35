//! What is exported: the values of each metric family of the catalogue (`evictscope-model`), in the order of export.
//! Families that export a member of `server` unchanged come from the list of members, and are placed between the
//! others.
//!
//! Each file says what would contradict its numbers, its *second observers*, and whether the agent watches them.
//! Members of `server` that are exported unchanged are held against `INFO` in tests, and against `maxmemory` at each
//! evicting call.
//!
//! `docs/METRICS.md` describes them to users, and `documentation.rs` tests that it does.

mod agent;
mod calls;
mod clients;
#[cfg(test)]
mod documentation;
mod family;
mod memory;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use agent::{loop_last_turn, records, servers_ended, servers_unwatched};
use evictscope_model::{Member, MemberMetric};
pub use family::Family;
use prometheus::proto::MetricFamily;

use crate::exported::ExportedServer;

/// Returns all families that have a series: those of the servers, and the build of this agent.
pub fn families(servers: &[Arc<ExportedServer>]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    for server in servers {
        for (index, family) in of_server(server).iter().enumerate() {
            // Every server has the same families.
            if index == families.len() {
                families.push(family.begun());
            }
            family.add_to(&mut families[index], Some(&server.label));
        }
    }
    families.retain(|family| !family.get_metric().is_empty());
    families.push(agent::build_info());
    families
}

/// Returns all families of a server, including those without a series.
pub fn of_server(server: &ExportedServer) -> Vec<Family<'_>> {
    fn is_of_cycles(metric: &MemberMetric) -> bool {
        metric.name.starts_with("evictscope_expire_cycle_")
    }
    let is_other_counter = |metric: &MemberMetric| metric.is_counter() && !is_of_cycles(metric);
    let mut all = calls::calls(server);
    all.extend(memory::client_buffers(server));
    all.extend(members(server, |metric| !metric.is_counter()));
    all.extend(memory::limit(server));
    all.push(memory::parts(server));
    all.push(memory::losses(server));
    all.push(memory::policy(server));
    all.extend(memory::candidate(server));
    all.extend(memory::margins(server));
    all.extend(members(server, is_other_counter));
    all.extend(calls::cycles(server));
    all.extend(members(server, is_of_cycles));
    all.extend(calls::stale(server));
    all.extend(clients::main_thread(server));
    all.extend(calls::phases(server));
    all.extend(clients::families(server));
    all.extend(calls::bursts(server));
    all.extend(agent::probes(server));
    all
}

/// Returns the families that export a member of `server` unchanged.
fn members(server: &ExportedServer, are_here: impl Fn(&MemberMetric) -> bool) -> impl Iterator<Item = Family<'_>> {
    let values = server.members();
    Member::ALL.iter().filter_map(move |member| {
        Some(Family::of_member(*member, member.line().metric.filter(&are_here)?, values.get(*member)))
    })
}
