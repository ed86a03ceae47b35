//! The landing page: what runs here, and where to go on.

use maud::{DOCTYPE, Markup, html};

use super::ExportedServer;

const STYLE: &str = "
:root { color-scheme: light dark; font-family: system-ui, sans-serif }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: .3rem .6rem; text-align: left; vertical-align: top }
";

/// The page; everything that comes from a server is escaped.
pub(super) fn page(servers: &[ExportedServer]) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "evictscope" }
                style { (STYLE) }
            }
            body {
                h1 { "evictscope " (env!("CARGO_PKG_VERSION")) }
                p { "Eviction metrics of the Redis servers on this host." }
                ul {
                    li { a href="/metrics" { "/metrics" } " for Prometheus" }
                    li { a href="/-/healthy" { "/-/healthy" } ", " a href="/-/ready" { "/-/ready" } }
                }
                h2 { "Servers" }
                @if servers.is_empty() {
                    p { "None runs here now. Those that start are seen within two seconds." }
                } @else {
                    table {
                        thead {
                            tr { th { "server" } th { "pid" } th { "version" } th { "executable" } th { "probe mode" } th { "not exported" } }
                        }
                        tbody {
                            @for server in servers { (row(server)) }
                        }
                    }
                }
            }
        }
    }
}

fn row(server: &ExportedServer) -> Markup {
    let plan = &server.plan;
    html! {
        tr {
            td { (server.label) }
            td { (server.pid) }
            td { (plan.product.as_deref().unwrap_or("unknown")) " " (plan.version.as_deref().unwrap_or("")) }
            td { (server.exe.display()) }
            td { (server.mode) }
            td {
                @if plan.refusals.is_empty() { "nothing" }
                @for refusal in &plan.refusals {
                    div { (refusal.what) ": " (refusal.why) }
                }
            }
        }
    }
}
