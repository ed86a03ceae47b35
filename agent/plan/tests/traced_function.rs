//! A second traced function needs its own folder and an entry in the list, and nothing else.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run a compiler and read files"
)]

mod made_up;

use anyhow::{Context as _, ensure};
use evictscope_plan::{EVICTION_CALL, Item, plan_functions};
use evictscope_testkit::compiler;
use made_up::MADE_UP;
use object::{Object as _, ObjectSymbol as _};

/// Compiles a fixture; `None` if there is no compiler.
fn compile(fixture: &str, level: &str) -> Option<Vec<u8>> {
    let source = format!("#include \"{fixture}\"\n");
    compiler::compile("cc", &source, &["-rdynamic", "-DFORM=", level])
}

#[test]
fn a_second_function_is_planned_beside_the_first() -> anyhow::Result<()> {
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let Some(data) = compile("made_up.c", level) else { return Ok(()) };
        let plan = plan_functions(&data, None, &[EVICTION_CALL, MADE_UP])?;
        let function = plan.function(MADE_UP.description).context("not planned")?;
        ensure!(function.kind.index == 1, "{function:?}");

        let file = object::File::parse(&*data)?;
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok("made_up"));
        let symbol = symbol.context("no symbol")?;
        ensure!(function.address.get() == symbol.address(), "{function:?}");
        let code = symbol.address()..symbol.address() + symbol.size();
        let entry = function.every_call().context("no entry")?;
        ensure!(code.contains(&entry.address.get()), "{level}: {entry:?}");
        // At higher levels gcc moves the pushes after the test for an early return.
        let is_push = entry.emulated && entry.instruction.starts_with("push");
        ensure!(is_push || level == "-O2" || level == "-O3", "{level}: {entry:?}");
        ensure!(!function.span.exits.is_empty(), "{level}: no exits");
        for exit in &function.span.exits {
            ensure!(code.contains(&exit.site.address.get()), "{level}: {exit:?}");
        }
        // If a result is not known, the plan says so.
        let is_known = function.span.exits.iter().all(|exit| exit.result.is_some());
        let is_missing = |item| plan.not_found.iter().any(|missing| missing.item == item);
        ensure!(is_known != is_missing(Item::Result(function.kind)), "{level}: {function:?}");
        // The program is not a server, and the plan says so.
        let missing: Vec<String> = plan.not_found.iter().map(|missing| missing.item.to_string()).collect();
        ensure!(missing.first().is_some_and(|item| item == "eviction_call"), "{missing:?}");
        let json = serde_json::to_value(&plan)?;
        ensure!(json["functions"][0]["kind"] == "made_up_call", "{json}");
    }
    Ok(())
}

#[test]
fn a_longer_list_changes_nothing_about_the_first() -> anyhow::Result<()> {
    let Some(data) = compile("evict.c", "-O2") else { return Ok(()) };
    let mut alone = plan_functions(&data, None, &[EVICTION_CALL])?;
    let both = plan_functions(&data, None, &[EVICTION_CALL, MADE_UP])?;
    let added: Vec<_> = both.not_found.iter().filter(|missing| !alone.not_found.contains(missing)).cloned().collect();
    ensure!(matches!(added[..], [ref only] if matches!(only.item, Item::Function(_))), "{added:?}");
    alone.not_found = both.not_found.clone();
    ensure!(alone == both, "{alone:?}\n{both:?}");
    Ok(())
}
