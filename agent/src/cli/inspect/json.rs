//! What `inspect --json` prints.
//!
//! One object, on stdout. It is stable: a field that is described here keeps its name, its place, its type, its unit
//! and its meaning within a major version of evictscope. Fields can be added, and so can values that are names of a
//! kind (`kind`, `method`, `item`, `cost.source`): ignore what you do not know. Every field is always there, unless its
//! row says when it is; what is not known is `null`. A list has only what was found, so it can be empty. Texts for
//! people (`why`, `instruction`, `recipe`) can change their wording.
//!
//! Addresses are virtual addresses as in the ELF file, decimal: add the load bias for those in a
//! process. File offsets are what the kernel's uprobes want.
//!
//! | field | type | meaning |
//! |---|---|---|
//! | `path` | string | The executable; for a process, as the process sees it. |
//! | `debug_file` | string or null | The separate debug file whose information was used, as this host sees it. |
//! | `planning_seconds` | number | Wall time that planning took, seconds, without reading the file. |
//! | `build_id` | string or null | GNU build id, lower-case hexadecimal. |
//! | `product` | string or null | `redis`, `valkey` or `keydb`. |
//! | `version` | string or null | Version of the server, such as `7.0.15`, or its series (`7.0`) if no more is certain. |
//! | `functions` | list | The traced functions that were found. |
//! | `functions[].kind` | string | Which traced function: `eviction_call` or `expire_cycle`. |
//! | `functions[].name` | string | Its name in Redis's source. |
//! | `functions[].address` | number | Its address. |
//! | `functions[].entry` | object or null | Where every call passes: the entry and return probes of mode `every-call` (`eviction_enter`, `eviction_return`). No mode probes the entry of the expire cycle. |
//! | `functions[].entry.address` | number | Its address. |
//! | `functions[].entry.file_offset` | number | Its offset in the file, bytes. |
//! | `functions[].entry.instruction` | string | The instruction there, in AT&T syntax, as `objdump` prints it. |
//! | `functions[].entry.emulated` | boolean | Whether the kernel emulates that instruction under a probe; else it single-steps it, at about ten times the cost. |
//! | `functions[].inner` | object or null | Where each call that goes past the early returns passes once: an evicting call (the probe `eviction_goal`), or an expire cycle that does anything (the probe `expire_start`). |
//! | `functions[].inner.address` | number | As in `entry`. |
//! | `functions[].inner.file_offset` | number | As in `entry`. |
//! | `functions[].inner.instruction` | string | As in `entry`. |
//! | `functions[].inner.emulated` | boolean | As in `entry`. |
//! | `functions[].inner.quantities` | list | What can be read there. |
//! | `functions[].inner.quantities[].name` | string | Its name in Redis's source: `mem_reported`, `overhead`, `mem_used`, `mem_tofree`, `maxmemory`. |
//! | `functions[].inner.quantities[].recipe` | string | How it is computed there, bytes: a sum or difference of registers (`rbx + rax`), memory (`[rsp+0x30]`), globals (`server.maxmemory`) and constants. |
//! | `functions[].inner.quantities[].method` | string | How that was found: `dataflow` (symbolic execution of the machine code), or `both` (debug information says the same). |
//! | `functions[].inner.cycle_type` | string | Where the type of an expire cycle is: 0 slow, 1 fast, 4 bytes. Only for the expire cycle, and only if it was found. |
//! | `functions[].inner.job` | string | Where the number of the job of an expire cycle of Valkey 9 is: 0 for keys, 1 for fields of hashes, 4 bytes. As `cycle_type`. |
//! | `functions[].fields_inner` | object | Where the job for fields of hashes begins, if each of the two jobs of an expire cycle has its own function; `inner` is then in the function for keys, and the exits are those of both. Only for Valkey 9. |
//! | `functions[].fields_inner.address` | number | As in `inner`. |
//! | `functions[].fields_inner.file_offset` | number | As in `inner`. |
//! | `functions[].fields_inner.instruction` | string | As in `inner`. |
//! | `functions[].fields_inner.emulated` | boolean | As in `inner`. |
//! | `functions[].fields_inner.quantities` | list | As in `inner`; empty. |
//! | `functions[].fields_inner.cycle_type` | string | As in `inner`. |
//! | `functions[].fields_inner.job` | string | As in `inner`. |
//! | `functions[].exits` | list | Each of those calls ends at exactly one of these, and calls within the limit pass none: the probes `eviction_done`, `expire_end`. Empty if they end only where the others do: evicting calls are then timed only in every-call mode, by the return probe. |
//! | `functions[].exits[].address` | number | As in `entry`. |
//! | `functions[].exits[].file_offset` | number | As in `entry`. |
//! | `functions[].exits[].instruction` | string | As in `entry`. |
//! | `functions[].exits[].emulated` | boolean | As in `entry`. |
//! | `functions[].exits[].way` | object or null | If only the calls that leave a conditional jump one way end here: that way. The others pay for a hit; at the goal site each call does, and none has an `eviction_done` there. |
//! | `functions[].exits[].way.taken` | boolean | Whether the jump is taken. |
//! | `functions[].exits[].result` | string or null | The register or memory that holds the call's result there (0 ok, 1 running, 2 fail; before Redis 6.2 4294967295 is fail). |
//! | `functions[].exits[].sampled` | string | Where the number of keys that the expire cycle sampled is, 8 bytes. Only for the expire cycle, and only if it was found. |
//! | `functions[].exits[].expired` | string | Where the number of those that had expired is, 8 bytes. As `sampled`. |
//! | `members` | list | What is read from the server's memory. |
//! | `members[].name` | string | A member of `server`, by its name in Redis's source, or `used_memory` for the allocator's counter. Valkey has other names for `config_hz` (`hz`), `stat_expired_stale_perc` (`stat_expired_keys_stale_perc`) and `stat_expired_subkeys` (`stat_expiredfields`). What the server's version does not have, such as `stat_expired_subkeys` before Redis 7.4, is in neither list. |
//! | `members[].address` | number | Its address. |
//! | `members[].offset` | number or null | Its offset in `server`, bytes; `null` if it is not a member of that, or it is not certain where `server` begins. |
//! | `members[].method` | string | `config_table` (the table of configuration directives), `dataflow`, `known_layout` (the layout of a release that agrees with all else), `symbol` (its name), `dwarf` (debug information), or `both` (debug information and one of the others, which agree). |
//! | `members[].counters` | object or null | The counters whose sum is `used_memory`, if there are several, one for each thread; `address` is that of the first. |
//! | `members[].counters.stride` | number | Distance between two of them, bytes. |
//! | `members[].counters.most` | number | How many there are. |
//! | `members[].counters.threads` | number or null | Address of the number of threads: no more counters than that are in use. |
//! | `members[].counters.threads_width` | number | Bytes of that number, 4 or 8. |
//! | `members[].counters.overflow` | number or null | Address of the counter that the threads without one of their own share. |
//! | `commands` | object or null | Where the server counts its commands: entries of its table of commands. Commands of modules are not in it. |
//! | `commands.address` | number | Address of the first. |
//! | `commands.entries` | number | How many commands the table has. |
//! | `commands.subcommands` | number | How many subcommands have entries of their own, elsewhere; since 7.0. |
//! | `commands.stride` | number | Bytes from one entry to the next. |
//! | `commands.calls` | number | Bytes from the beginning of an entry to its number of calls, 8 bytes. |
//! | `commands.microseconds` | number | The same to the time that they took. |
//! | `commands.rejected` | number or null | The same to the number of calls that were refused before they ran; since 6.2. |
//! | `commands.failed` | number or null | The same to the number of calls that ran and answered an error; since 6.2. |
//! | `not_found` | list | What was not found, and so is not exported. |
//! | `not_found[].item` | string | A quantity or member by name, a probe (`eviction_enter`, `eviction_goal`, `eviction_done`, `expire_start`, `expire_end`), `eviction_call`, `expire_cycle`, `expire_type`, `expire_keys_sampled`, `expire_keys_expired`, `eviction_result`, `commands`, `dwarf`, `version`, or `plan`. |
//! | `not_found[].why` | string | The reason. If debug information and machine code disagree, what each says. |
//! | `lost` | list | What follows from each item of `not_found`. |
//! | `lost[].item` | string | As in `not_found`. |
//! | `lost[].why` | string | As in `not_found`. |
//! | `lost[].metrics` | list | Metrics that have no series for this server, lack the label or the value in braces, or do not count all of it. |
//! | `lost[].alerts` | list | Alerts that cannot fire for this server. |
//! | `lost[].would_help` | string | What would bring it back. Its wording can change. |
//! | `cost` | object or null | Prediction of what the probes would cost; `null` without `--rate`. |
//! | `cost.source` | string | `measured`: on this machine, just now. `documented`: the highest that was measured on another machine. |
//! | `cost.calls_per_second` | number | Eviction calls a second: what `--rate` says. |
//! | `cost.modes` | list | Each probe mode. |
//! | `cost.modes[].mode` | string | `every-call` or `evicting-only`. |
//! | `cost.modes[].noop_call_ns` | number | What the probes add to a call that is within the limit, nanoseconds. |
//! | `cost.modes[].evicting_call_ns` | number | What they add to a call that evicts, nanoseconds. |
//! | `cost.modes[].ratio_if_none_evicts` | number | Share of the main thread at that rate if no call evicts; 1 is all of one core. |
//! | `cost.modes[].ratio_if_all_evict` | number | The same if every call evicts. What a server pays is between the two. |
//!
//! `agent/tests/command_line/inspect_format.rs` compares this table with what is printed.

use std::fmt;
use std::path::Path;

use evictscope_host::package_of;
use evictscope_model::{Lost, Member};
use evictscope_plan::{Item, NotFound, ProbePlan, Reason};
use serde::Serialize;

use super::cost::Prediction;

/// What `--json` prints.
#[derive(Serialize)]
pub struct InspectReport<'a> {
    pub path: &'a Path,
    pub debug_file: Option<&'a Path>,
    pub planning_seconds: f64,
    #[serde(flatten)]
    pub plan: &'a ProbePlan,
    pub lost: &'a [Missing<'a>],
    pub cost: Option<Prediction>,
}

/// An item that was not found: what is lost, and what would help.
#[derive(Serialize)]
pub struct Missing<'a> {
    item: Item,
    why: &'a Reason,
    #[serde(flatten)]
    lost: Lost,
    would_help: String,
}

/// Returns what was not found in the executable that is called `exe` below `root`. `lacks_symbols` says whether it has
/// no debug information, and no separate file with it was found.
pub fn missing<'a>(plan: &'a ProbePlan, lacks_symbols: bool, exe: &Path, root: &Path) -> Vec<Missing<'a>> {
    let by_symbols = |item: Item| match item {
        Item::Member(member) => member != Member::EvictionPool,
        _ => matches!(item, Item::Function(_)),
    };
    let is_asked = lacks_symbols && plan.not_found.iter().any(|missing| by_symbols(missing.item));
    let package = is_asked.then(|| package_of(exe, root)).flatten();
    let describe = |NotFound { item, reason }: &'a NotFound| Missing {
        item: *item,
        why: reason,
        lost: item.lost(),
        would_help: match reason {
            Reason::Unsupported(_) => "only another server".to_owned(),
            Reason::Budget => "nothing".to_owned(),
            Reason::Packed => "unpacking the server with `upx -d`, and restarting it".to_owned(),
            _ if by_symbols(*item) && lacks_symbols => match &package {
                Some(package) => format!("debug symbols: package {package}-dbgsym"),
                None => "debug symbols, from where the executable came from".to_owned(),
            },
            _ => "a newer evictscope; please report it with `evictscope inspect --json`".to_owned(),
        },
    };
    plan.not_found.iter().map(describe).collect()
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { metrics, alerts } = &self.lost;
        writeln!(f, "  {}: {}", self.item, self.why)?;
        let mut list =
            |what: &str, names: String| if names.is_empty() { Ok(()) } else { writeln!(f, "    {what} {names}") };
        let below = "\n                   ";
        list("lost metrics  ", metrics.join(below))?;
        list("lost alerts   ", alerts.join(below))?;
        writeln!(f, "    would help     {}", self.would_help)
    }
}
