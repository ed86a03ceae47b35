//! The expire cycle: `activeExpireCycle()`.
//!
//! [`entry`] tells which function it is, and finds the moving average at the end of every cycle that gets past the
//! early returns. [`start`] is the site that exactly those cycles pass, and tells their type.

pub mod entry;
mod start;

use evictscope_machine::code::FunctionCode;
use evictscope_machine::flow::{CutPoint, Execution, Operand, Quotient};
use evictscope_machine::sites::{Calls, Site};
use evictscope_model::{FileAddress, Member};

use self::entry::CycleFunction;
use self::start::{ByType, CycleWork};
use super::{Analysis, Traced};
use crate::item::{Description, FunctionKind, Item, Reason};
use crate::members::MemberPlan;
use crate::plan::{CycleEndPlan, CycleStartPlan, Exit, ExpirePlan, FunctionPlan, NotFound, TracedFunction};

/// The expire cycle.
pub const EXPIRE_CYCLE: Traced = Traced {
    description: &Description { kind: "expire_cycle", prefix: "expire", inner: Some("start"), exit: "end" },
    texts: &[entry::TEXT],
    plan,
};

/// The early returns and the rest cannot be told apart.
const NO_START: &str =
    "no instruction before the loop over databases is passed by all cycles that do anything, and no others";
/// The type is not in reach.
const NO_TYPE: &str = "no register or stack slot holds the type of the cycle where it starts";
/// The counts are in functions that the cycle calls.
const IN_JOBS: &str = "keys and fields of hashes are counted in two functions that the cycle calls";
/// The counts are in one function for keys and for fields.
const NO_JOB: &str =
    "no register or stack slot tells where the cycle starts whether keys or fields of hashes are counted";
/// The counts are not in reach.
const NO_KEYS: &str = "no register or stack slot is known to hold the number where the cycle ends";

fn plan(analysis: &mut Analysis<'_, '_>, kind: FunctionKind) -> Option<TracedFunction> {
    let cycle = entry::expire_cycle(analysis.image, analysis.texts)
        .map_err(|why| analysis.miss(Item::Function(kind), Reason::Sentence(why)))
        .ok()?;
    let (mut function, code) = analysis.begin(kind, entry::NAME, cycle.function.address)?;
    let missed = analysis.not_found.len();
    let apart = cycle.job_functions.as_ref().and_then(|functions| jobs_apart(analysis, kind, functions));
    if let Some(parts) = apart {
        place(&mut function, parts);
        return Some(function);
    }
    analysis.not_found.truncate(missed);
    function.plan = FunctionPlan::Expire(ExpirePlan::default());
    let ends = match cycle.jobs.as_slice() {
        [] => entry::blocks(analysis.image, &code),
        jobs => jobs.iter().map(|job| job.call.block).collect(),
    };
    let mut by_type = ByType::run(&code, &cycle.function.type_registers);
    let jobs: Vec<FileAddress> = cycle.jobs.iter().map(|job| job.address).collect();
    let mut by_job = (cycle.job_register).map(|register| ByType::run(&code, &[register]));
    let work = CycleWork::before(&code, &ends);
    let start = work.start(&code, &ends, &jobs, &mut by_type, by_job.as_mut());
    let Some(mut start) = start else {
        analysis.miss(Item::Inner(kind), Reason::Unrecognised(NO_START));
        return Some(function);
    };
    if start.plan.cycle_type.is_none() {
        analysis.miss(Item::CycleType, Reason::Unrecognised(NO_TYPE));
    }
    // Both jobs are counted by type.
    start.plan.job = start.plan.job.filter(|_| start.plan.cycle_type.is_some());
    let lost = match (cycle.is_job, &start.plan.job) {
        _ if !jobs.is_empty() => Some(IN_JOBS),
        (true, None) => Some(NO_JOB),
        _ => None,
    };
    let ends = exits(analysis, kind, &code, work.calls(&start, &jobs), lost);
    let begin = Site::at(analysis.image, &start.instruction);
    place(&mut function, [(begin.map(|site| (site, start.plan)), ends)]);
    Some(function)
}

/// Counts the keys that had expired in a cycle by how much the server's own count grows in it, where ends know those
/// that were sampled and not those: some compilers keep that number in a vector register, which no program can read.
pub fn count_by_member(functions: &mut [TracedFunction], members: &[MemberPlan], not_found: &mut Vec<NotFound>) {
    let plans = functions.iter_mut().filter_map(|function| match &mut function.plan {
        FunctionPlan::Expire(plan) => Some(plan),
        _ => None,
    });
    let member = members.iter().find(|found| found.member == Member::StatExpiredkeys);
    for (ExpirePlan { starts, ends }, member) in plans.zip(member) {
        let is_whole = !starts.is_empty() && starts.iter().all(|start| start.job.is_none());
        let are_sampled = ends.iter().all(|end| end.sampled.is_some());
        if !is_whole || !are_sampled || ends.iter().all(|end| end.expired.is_some()) {
            continue;
        }
        let count = Operand::Global { address: member.address, name: format!("server.{}", member.member.name()) };
        starts.iter_mut().for_each(|start| start.expired = Some(count.clone()));
        ends.iter_mut().for_each(|end| end.expired = Some(count.clone()));
        not_found.retain(|missing| missing.item != Item::KeysExpired);
    }
}

/// Where a part of a cycle begins, if that is in the file, and where it ends.
type Part = (Option<(Site, CycleStartPlan)>, Vec<(Exit, CycleEndPlan)>);

/// Puts the parts of a cycle, or its only part, into the plan.
fn place(function: &mut TracedFunction, parts: impl IntoIterator<Item = Part>) {
    let mut planned = ExpirePlan::default();
    for (begin, ends) in parts {
        if let Some((site, start)) = begin {
            function.span.inner.push(site);
            planned.starts.push(start);
        }
        for (exit, end) in ends {
            function.span.exits.push(exit);
            planned.ends.push(end);
        }
    }
    function.plan = FunctionPlan::Expire(planned);
}

/// Plans the functions of the job for keys and of the job for fields of hashes, in this order. `None` if it is not
/// certain which is which, or what either does.
fn jobs_apart(
    analysis: &mut Analysis<'_, '_>,
    kind: FunctionKind,
    functions: &[CycleFunction; 2],
) -> Option<Vec<Part>> {
    let image = analysis.image;
    let of_keys = analysis.in_info(Member::StatExpiredStalePerc)?;
    let mut jobs = Vec::new();
    for of in functions {
        let code = FunctionCode::decode(image, of.address).ok()?;
        let ends = entry::blocks(image, &code);
        let is_for_keys = entry::kept_at(image, &code, &ends)? == of_keys;
        jobs.push((!is_for_keys, of, code, ends));
    }
    jobs.sort_by_key(|(is_for_fields, ..)| *is_for_fields);
    let [(false, ..), (true, ..)] = jobs[..] else { return None };
    let mut planned = Vec::new();
    for (job, (_, of, code, ends)) in (0..).zip(&jobs) {
        let mut by_type = ByType::run(code, &of.type_registers);
        let work = CycleWork::before(code, ends);
        let mut start = work.start(code, ends, &[], &mut by_type, None)?;
        start.plan.job = Some(Operand::Constant(job));
        let exits = exits(analysis, kind, code, work.calls(&start, &[]), None);
        if start.plan.cycle_type.is_none() || exits.is_empty() {
            return None;
        }
        planned.push((Some((Site::at(image, &start.instruction)?, start.plan)), exits));
    }
    Some(planned)
}

/// Plans the exits of the cycles that pass the start, with the counts there, unless these are `lost`.
fn exits(
    analysis: &mut Analysis<'_, '_>,
    kind: FunctionKind,
    code: &FunctionCode,
    calls: Calls<'_>,
    lost: Option<&'static str>,
) -> Vec<(Exit, CycleEndPlan)> {
    let mut execution = Execution::run(code);
    let image = analysis.image;
    let passed = calls.passed_blocks(code);
    let share = if lost.is_some() { None } else { Quotient::find(&mut execution, &passed, entry::OF_THIS_CYCLE) };
    let look = |execution: &mut Execution<'_>, point: CutPoint| match &share {
        Some(share) => {
            // Counts of other things, such as fields of hashes, never come to the division for the moving average.
            let [expired, sampled] = share.at(image, execution, point).unwrap_or_default();
            // Some compilers keep the first where no end has it.
            let missing = u64::from(expired.is_none()) + 2 * u64::from(sampled.is_none());
            (CycleEndPlan { sampled, expired }, missing)
        }
        None => (CycleEndPlan::default(), 0),
    };
    let found = analysis.exits_with(kind, &mut execution, calls, look);
    let keys = || found.iter().map(|(_, keys)| keys);
    let is_missing = [
        (Item::KeysSampled, keys().any(|keys| keys.sampled.is_none())),
        (Item::KeysExpired, keys().any(|keys| keys.expired.is_none())),
    ];
    let why = lost.unwrap_or(NO_KEYS);
    for (item, _) in is_missing.into_iter().filter(|(_, missing)| *missing) {
        analysis.miss(item, Reason::Unrecognised(why));
    }
    found
}
