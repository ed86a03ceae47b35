//! The landing page: which servers are watched, and where the metrics are.

use form_urlencoded::byte_serialize;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::cycles;
use super::server::ExportedServer;
use super::unwatched::Unwatched;
use crate::telemetry::ProbeMode;

/// Follows the colours that the browser prefers, light or dark.
const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid GrayText; padding: .3rem 1rem .3rem 0; text-align: left; vertical-align: top; }
ul { margin: 0; padding-left: 1.2rem; }";

/// Returns the landing page. `servers` is `None` until the first scan is done. All text is escaped: names
/// and paths come from processes that anybody may have started.
pub(super) fn page(servers: Option<&[ExportedServer]>, unwatched: &[Unwatched]) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "evictscope" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "evictscope " (env!("CARGO_PKG_VERSION")) }
                p { "Eviction metrics of the redis-server processes that run on this host." }
                p {
                    a href="/metrics" { "Metrics" } " · "
                    a href="/api/v1/bursts" { "Bursts" } " · "
                    a href="/-/healthy" { "Healthy?" } " · "
                    a href="/-/ready" { "Ready?" }
                }
                h2 { "Servers" }
                @match servers {
                    None => p { "Looking for servers. Reload this page in a moment." },
                    Some([]) => p { "No server is watched at present." },
                    Some(servers) => div {
                        table {
                            thead {
                                tr {
                                    th { "Server" } th { "Phase" } th { "Pid" } th { "Executable" }
                                    th { "Version" } th { "Probe mode" } th { "Expiry" } th { "Not exported" }
                                }
                            }
                            tbody {
                                @for server in servers { (row(server)) }
                            }
                        }
                    },
                }
                @if !unwatched.is_empty() {
                    h2 { "Not watched" }
                    ul {
                        @for server in unwatched {
                            li { (server.server) " (pid " (server.pid) "): " (server.why) }
                        }
                    }
                }
            }
        }
    }
    .into_string()
}

fn row(server: &ExportedServer) -> Markup {
    let plan = &server.plan;
    html! {
        tr {
            td { (server.label) }
            td {
                @let query = byte_serialize(server.label.as_bytes()).collect::<String>();
                @if let Some(cycle) = server.cycle() {
                    (cycle.phases.phase) br;
                    a href={ "/heatmap.svg?server=" (query) } { "Heat map" } " · "
                    a href={ "/api/v1/timeline?server=" (query) } { "Timeline" } " · "
                    a href={ "/api/v1/bursts?server=" (query) } { "Bursts" }
                } @else {
                    "not known"
                }
            }
            td { (server.pid) }
            td { (server.exe.display()) }
            td {
                (plan.identity.product.unwrap_or("unknown")) " "
                (plan.identity.version.as_deref().unwrap_or(""))
            }
            td {
                @match server.withdrawn {
                    Some(broken) => { "withdrawn: " (broken.meaning()) },
                    None => {
                        (server.mode)
                        @if server.mode == ProbeMode::Sampled {
                            br; "evicting calls are observed for a part of the time"
                        }
                    },
                }
            }
            td { (expiry(server)) }
            td {
                @if plan.not_found.is_empty() {
                    "nothing"
                } @else {
                    ul {
                        @for missing in &plan.not_found { li { (missing.item) ": " (missing.reason) } }
                    }
                }
            }
        }
    }
}

/// Says what is known of expiry: how many cycles there were, and which share of the keys is stale.
fn expiry(server: &ExportedServer) -> Markup {
    let counted = cycles::counted(server);
    let own = cycles::trusted_own(server);
    html! {
        @match server.cycles_withdrawn {
            Some(broken) => { "withdrawn: " (broken.meaning()) br; },
            None => @for (of_type, count) in &counted { (of_type) " cycles: " (count) br; },
        }
        @if let Some(hits) = own.and_then(|own| own.time_limit_hits) {
            "ended at their time limit: " (hits) br;
        }
        @if let Some(ratio) = own.and_then(|own| own.stale_ratio) {
            (format!("{:.0} %", ratio * 100.0)) " of keys stale"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::page;
    use crate::export::ExportedServer;
    use crate::export::fixture::{busy_server, new_server, partial_server, unwatched};
    use crate::telemetry::{BrokenInvariant, ProbeMode};

    #[test]
    fn the_page_says_what_is_watched() {
        assert!(page(None, &[]).contains("Looking for servers"));
        assert!(page(Some(&[]), &[]).contains("No server is watched"));
        let page = page(Some(&[new_server()]), &[]);
        assert!(!page.contains("Not watched"));
        for text in [
            "6379",
            "/usr/bin/redis-check-rdb",
            "redis 7.0.15",
            "evicting-only",
        ] {
            let cell = format!("<td>{text}</td>");
            assert!(page.contains(&cell), "{text} in {page}");
        }
    }

    #[test]
    fn the_page_says_what_expiry_does() {
        let whole = page(Some(&[busy_server()]), &[]);
        let cell = "slow cycles: 3<br>fast cycles: 1<br>ended at their time limit: 2<br>25 % of keys stale";
        assert!(whole.contains(cell), "{whole}");
        let withdrawn = page(
            Some(&[ExportedServer {
                cycles_withdrawn: Some(BrokenInvariant::CycleTime),
                ..busy_server()
            }]),
            &[],
        );
        let cell = "withdrawn: expire cycles do not take as long as the server says";
        assert!(withdrawn.contains(cell), "{withdrawn}");
        assert!(!withdrawn.contains("slow cycles"), "{withdrawn}");
    }

    #[test]
    fn a_sampled_server_is_explained() {
        let mut server = new_server();
        let explained = "sampled<br>evicting calls are observed for a part of the time";
        assert!(!page(Some(&[server.clone()]), &[]).contains(explained));
        server.mode = ProbeMode::Sampled;
        assert!(page(Some(&[server]), &[]).contains(explained));
    }

    #[test]
    fn all_text_is_escaped() {
        let page = page(Some(&[partial_server()]), &[unwatched()]);
        for text in [
            "/run/&quot;&lt;b&gt;&quot;.sock",
            "/opt/&lt;redis&gt; &amp; co/redis-server (deleted)",
            "<li>6380 (pid 43): Redis &lt;5&gt; is too old</li>",
            "<li>eviction_goal: no place where &lt;all&gt; of it is in reach</li>",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("<b>"));
    }
}
