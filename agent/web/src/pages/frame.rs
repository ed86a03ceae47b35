//! What all pages have around their content.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest::{SHA256, digest};

use super::heatmap;
use crate::version;

const STYLE: &str = include_str!("style.css");

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the agent, about something that no longer changes.
    Kept,
    /// On the agent. It may be loaded again after some seconds.
    Agent {
        /// After how many seconds.
        refresh: Option<u32>,
    },
    /// In a file of its own, with no other page to link to.
    File,
}

/// What a browser may load and run for a page or a drawing: no script, nothing from another host, and no styles but
/// ours. Forms go to the agent alone.
pub static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hashes = [STYLE, heatmap::STYLE].map(hash).join(" ");
    format!(
        "default-src 'none'; style-src {hashes}; img-src 'self' data:; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'"
    )
});

/// Returns the hash of a style sheet in the form that a policy uses: it covers the element's content, without its tags.
fn hash(style: &str) -> String {
    let hash = BASE64_STANDARD.encode(digest(&SHA256, style.as_bytes()));
    format!("'sha256-{hash}'")
}

pub fn page(title: &str, place: Place, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // A file has no header to carry it.
                @if place == Place::File {
                    meta http-equiv="Content-Security-Policy"
                        content={ "default-src 'none'; style-src " (hash(STYLE)) "; img-src data:" };
                }
                @if let Place::Agent { refresh: Some(seconds) } = place {
                    meta http-equiv="refresh" content=(seconds);
                }
                title { (title) " – evictscope" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                @if place != Place::File {
                    nav {
                        a href="/" { "All servers" } " · "
                        a href="/metrics" { "Metrics" }
                        @match place {
                            Place::Agent { refresh: Some(seconds) } => {
                                " · Loaded again every " (seconds) " s: " a href="?" { "stop" }
                            },
                            Place::Agent { refresh: None } => {
                                " · " a href="?refresh=10" { "Load again every 10 s" }
                            },
                            Place::Kept | Place::File => {},
                        }
                    }
                }
                (body)
                footer { "evictscope " (version::NUMBER) ". All times are UTC." }
            }
        }
    }
    .into_string()
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::{CONTENT_SECURITY_POLICY, Place, page};

    #[test]
    fn a_page_says_where_it_is() {
        let body = html! { h1 { "<b>" } };
        let calm = page("a <title>", Place::Agent { refresh: None }, &body);
        assert!(calm.contains("<title>a &lt;title&gt; – evictscope</title>"));
        assert!(calm.contains("href=\"?refresh=10\"") && !calm.contains("http-equiv"));
        let refreshed = page("", Place::Agent { refresh: Some(10) }, &body);
        assert!(refreshed.contains("<meta http-equiv=\"refresh\" content=\"10\">"));
        let file = page("", Place::File, &body);
        assert!(file.contains("http-equiv=\"Content-Security-Policy\""));
        assert!(!file.contains("href="), "it leads nowhere");
        for page in [calm, refreshed, file] {
            assert!(page.contains("<h1>&lt;b&gt;</h1>"));
            assert!(!page.contains("<script"));
        }
    }

    #[test]
    fn the_policy_lets_nothing_run() {
        let policy = &*CONTENT_SECURITY_POLICY;
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        for loose in ["unsafe", "*", "http", "script-src"] {
            assert!(!policy.contains(loose), "{policy}");
        }
    }
}
