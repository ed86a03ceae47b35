//! What the agent does with a server: what it watches and how, what was not found, and what it costs.

use evictscope_telemetry::ProbeMode;
use maud::{Markup, html};

use super::facts::fact;
use super::links;
use super::times::{UNKNOWN, percent};
use crate::published::exported::ExportedServer;

/// Says what is watched and how, what was not found, and what it costs.
pub fn section(server: &ExportedServer) -> Markup {
    html! {
        h2 { "The agent's work" }
        dl {
            (fact("Executable", maud::display(server.exe.display())))
            (fact("Started as", &server.command))
            @for (name, value) in container(server) { (fact(name, value)) }
            (fact("Probe mode", mode(server)))
        }
        @if server.plan.not_found.is_empty() && server.withdrawn.is_none() {
            p { "Everything that evictscope looks for was found in this executable." }
        }
        @if !server.plan.not_found.is_empty() {
            h3 id="not-found" { "What was not found" }
            ul { @for missing in &server.plan.not_found { li { (missing.item) ": " (missing.reason) } } }
            p { code { "evictscope inspect " (server.pid) } " says what each of them costs, and what would help." }
        }
        p {
            @match server.overhead_ratio {
                Some(ratio) => {
                    "In the last ten seconds, the probes took " (percent(ratio)) " of the main thread; the budget is "
                    (percent(server.overhead_budget_ratio)) "."
                },
                None => {
                    "Cost in the last ten seconds: " (UNKNOWN) "; the budget is " (percent(server.overhead_budget_ratio))
                    " of the main thread."
                },
            }
        }
        p {
            "Where the main thread spends its time: "
            code { "go tool pprof 'http://HOST:PORT" (links::about("/debug/pprof/profile", &server.label)) "&seconds=30'" }
        }
    }
}

/// Says in which mode a server is probed, or why it is not.
fn mode(server: &ExportedServer) -> Markup {
    html! {
        @match server.withdrawn {
            Some(broken) => { "withdrawn: " (broken.meaning()) },
            None => {
                (server.mode)
                @if server.is_obstructed {
                    br; "some of its probes cannot be placed now: the log says why"
                }
                @if server.mode == ProbeMode::Sampled {
                    br; "evicting calls are observed part of the time"
                }
            },
        }
    }
}

/// Returns where a server runs: its container, its pod and its control group, as far as it has them.
fn container(server: &ExportedServer) -> impl Iterator<Item = (&'static str, &String)> {
    let container = &server.container;
    let named = server.container_name.as_ref();
    let pod = named.and_then(|named| named.pod.as_ref());
    let cgroup = Some(&container.cgroup).filter(|path| !path.is_empty());
    let facts = [
        ("Container", named.map(|named| &named.name)),
        ("Container id", container.id.as_ref()),
        ("Namespace", pod.map(|pod| &pod.namespace)),
        ("Pod", pod.map(|pod| &pod.name)),
        ("Pod uid", container.pod_uid.as_ref()),
        ("Control group", cgroup),
    ];
    let facts = facts.into_iter();
    facts.filter_map(|(name, value)| Some((name, value?)))
}
