use std::collections::BTreeSet;
use std::sync::Arc;

use evictscope_telemetry::{BrokenInvariant, ProbeMode};
use prometheus::TextEncoder;

use super::families;
use crate::ExportedServer;
use crate::fixture::{busy_server, new_server, partial_server};

fn text_of(servers: impl IntoIterator<Item = ExportedServer>) -> prometheus::Result<String> {
    let servers: Vec<_> = servers.into_iter().map(Arc::new).collect();
    TextEncoder::new().encode_to_string(&families(&servers))
}

#[test]
fn the_text_of_made_up_servers() -> prometheus::Result<()> {
    let text = text_of([busy_server(), partial_server()])?;
    insta::with_settings!({ omit_expression => true }, {
        insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    });
    Ok(())
}

#[test]
fn without_a_server_the_build_is_exported() {
    let families = families(&[]);
    let names: Vec<_> = families.iter().map(|family| family.name()).collect();
    assert_eq!(names, ["evictscope_build_info"]);
}

#[test]
fn a_server_with_everything_has_210_series_at_most() -> prometheus::Result<()> {
    let overhead_ratio = Some(0.001);
    let text = text_of([ExportedServer { overhead_ratio, ..busy_server() }])?;
    let series = text.lines().filter(|line| line.contains("server=\""));
    let count = series.count();
    assert!((170..=210).contains(&count), "{count} series");
    Ok(())
}

/// Nothing that depends on a withdrawn plan is exported, nor are no-op calls while they are not counted; calls and
/// their variables are exported from the start.
#[test]
fn what_a_server_lacks_in_each_state() -> prometheus::Result<()> {
    let broken = [
        BrokenInvariant::Allocator,
        BrokenInvariant::Arithmetic,
        BrokenInvariant::Maxmemory,
        BrokenInvariant::LostExit,
    ];
    let withdrawn = broken.map(|broken| {
        let withdrawn = Some(broken);
        (format!("withdrawn: {broken}"), ExportedServer { withdrawn, ..busy_server() })
    });
    let (mode, cycles_withdrawn) = (ProbeMode::EvictingOnly, Some(BrokenInvariant::CycleTime));
    let others = [
        ("cycles withdrawn", ExportedServer { cycles_withdrawn, ..busy_server() }),
        ("evicting-only", ExportedServer { mode, ..busy_server() }),
        ("new", new_server()),
    ];
    let others = others.map(|(state, server)| (state.to_owned(), server));
    let whole = text_of([busy_server()])?;
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("le=\""));
        lines.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let mut said = String::new();
    for (state, server) in withdrawn.into_iter().chain(others) {
        let (whole, text) = (series(&whole), series(&text_of([server])?));
        said += &format!("{state}:\n");
        whole.difference(&text).for_each(|line| said += &format!("- {line}\n"));
        text.difference(&whole).for_each(|line| said += &format!("+ {line}\n"));
    }
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(said) });
    Ok(())
}
