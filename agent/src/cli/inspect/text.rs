//! Writes a probe plan as text for people.

use std::path::Path;
use std::time::Duration;

use evictscope_abi::VARIABLES;
use evictscope_host::printable;
use evictscope_plan::{
    CycleEndPlan, CycleStartPlan, FunctionPlan, Operand, ProbePlan, Site, TracedFunction, variable_name,
};

use super::json::Missing;

/// Returns the plan of the executable at `path` as text for people.
pub fn of(path: &Path, debug_file: Option<&Path>, plan: &ProbePlan, missing: &[Missing<'_>], took: Duration) -> String {
    let identity = &plan.identity;
    let mut lines = vec![
        format!("executable  {}", name(path)),
        format!(
            "server      {} {}",
            identity.product.unwrap_or("unknown product"),
            identity.version.as_deref().unwrap_or("of unknown version")
        ),
        format!("build id    {}", identity.build_id.as_deref().unwrap_or("none")),
        format!("planned in  {:.1} ms", took.as_secs_f64() * 1e3),
    ];
    lines.extend(debug_file.map(|path| format!("debug file  {}", name(path))));
    for function in &plan.functions {
        probes(function, &mut lines);
        quantities(function, &mut lines);
    }
    if !plan.members.is_empty() {
        members(plan, &mut lines);
    }
    if let Some(commands) = &plan.commands {
        let (entries, table) = (commands.entries().count(), commands.arrays.first());
        let at = table.map(|table| format!(" from {:#x} on", table.address)).unwrap_or_default();
        lines.extend([String::new(), format!("counters of {entries} commands and subcommands{at}")]);
    }
    lines.extend([String::new(), "not found".to_owned()]);
    if missing.is_empty() {
        lines.push("  nothing".to_owned());
    }
    lines.push(String::new());
    lines.extend(missing.iter().map(Missing::to_string));
    lines.join("\n")
}

fn name(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Adds the probes of one function, and where they were found.
fn probes(function: &TracedFunction, lines: &mut Vec<String>) {
    let description = function.kind.description;
    lines.extend([
        String::new(),
        format!("{} at {:#x}", function.name, function.address),
        "  probe                  address  file offset  kernel        instruction".to_owned(),
    ]);
    let mut probe = |part: &str, site: Option<&Site>, note: &str| {
        let name = description.probe(part);
        lines.push(match site {
            Some(site) => {
                let kernel = if site.emulated { "emulates" } else { "single-steps" };
                let Site { address, file_offset: offset, instruction, .. } = site;
                format!("  {name:<17} {address:#12x}  {offset:#11x}  {kernel:<12}  {instruction}{note}")
            }
            None => format!("  {name:<17} not found"),
        });
    };
    let cycle = function.plan.expire();
    // No mode probes cycles that do nothing.
    if cycle.is_none() {
        probe("enter", function.span.entry.as_ref(), "");
    }
    if let Some(part) = description.inner {
        for (number, site) in function.span.inner.iter().enumerate() {
            let note = cycle.and_then(|cycle| cycle.starts.get(number)).map(|start| {
                let CycleStartPlan { cycle_type, job, expired } = start;
                let more = [("job", job), ("expired before", expired)].map(|(name, operand)| {
                    operand.as_ref().map_or_else(String::new, |operand| format!(", {name}: {operand}"))
                });
                format!("   ({}{})", place("type", cycle_type.as_ref()), more.concat())
            });
            probe(part, Some(site), &note.unwrap_or_default());
        }
        if !function.has_inner_site() {
            probe(part, None, "");
        }
    }
    for (number, exit) in function.span.exits.iter().enumerate() {
        let way = match exit.way.map(|way| way.taken) {
            None => "",
            Some(true) => "if it jumps, ",
            Some(false) => "unless it jumps, ",
        };
        let known = match cycle.and_then(|cycle| cycle.ends.get(number)) {
            Some(CycleEndPlan { sampled, expired }) => [("sampled", sampled), ("expired", expired)]
                .map(|(name, operand)| place(name, operand.as_ref()))
                .join(", "),
            None => place("result", exit.result.as_ref()),
        };
        probe(description.exit, Some(&exit.site), &format!("   ({way}{known})"));
    }
    if function.span.exits.is_empty() {
        probe(description.exit, None, "");
    }
}

/// Says where a value is read at a probe.
fn place(name: &str, operand: Option<&Operand>) -> String {
    if let Some(operand) = operand { format!("{name}: {operand}") } else { format!("{name} not known") }
}

/// Adds the quantities of one function, and how they are computed.
fn quantities(function: &TracedFunction, lines: &mut Vec<String>) {
    if !matches!(function.plan, FunctionPlan::Eviction(_)) {
        return;
    }
    let description = function.kind.description;
    lines.push(format!(
        "  value          computed at {:<17}  found by",
        description.probe(description.inner.unwrap_or("inner"))
    ));
    for quantity in VARIABLES {
        let name = variable_name(quantity);
        lines.push(match function.quantity(quantity) {
            Some(plan) => {
                let recipe = plan.recipe.to_string();
                format!("  {name:<13}  {recipe:<29}  {}", plan.method)
            }
            None => format!("  {name:<13}  not found"),
        });
    }
}

/// Adds what is read from the server's memory.
fn members(plan: &ProbePlan, lines: &mut Vec<String>) {
    lines.extend([String::new(), "member of server                          address  offset  found by".to_owned()]);
    for member in &plan.members {
        let offset = member.offset.map(|offset| offset.to_string());
        lines.push(format!(
            "  {:<35} {:#11x}  {:>6}  {}",
            member.member.name(),
            member.address,
            offset.as_deref().unwrap_or("-"),
            member.method
        ));
    }
}
