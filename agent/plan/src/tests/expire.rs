//! The expire cycle in small programs, by several compilers.

use evictscope_testkit::compiler::compile;

use super::plan_of;
use crate::{CycleEndPlan, EXPIRE_CYCLE, ExpirePlan, FunctionPlan, Item, Operand, ProbePlan};

const PROGRAM: &str = "#include \"expire.c\"\n";
/// The compilers and levels to try.
const COMPILERS: [&str; 2] = ["gcc", "clang"];
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
/// The cycle counts keys itself. The last form has the newer vector instructions.
const WHOLE: [&[&str]; 4] = [&[], &["-DCALLBACK"], &["-DCALLBACK", "-DFIELDS"], &["-march=x86-64-v3"]];
/// The cycle calls jobs that count keys.
const JOBS: [&[&str]; 3] = [
    &["-DJOBS", "-DCALLBACK", "-DJOB=__attribute__((noinline))"],
    &["-DJOBS", "-DCALLBACK", "-DJOB="],
    &["-DJOBS", "-DCALLBACK", "-DAPART", "-DJOB=__attribute__((always_inline))inline"],
];

/// Returns the plans for the program, stripped, for each way to compile it.
fn plans(levels: &[&str], forms: &[&[&str]]) -> Vec<(String, ProbePlan)> {
    let mut plans = Vec::new();
    for compiler in COMPILERS {
        for level in levels {
            for form in forms {
                let options = [&[*level, "-s"], *form].concat();
                if let Some(data) = compile(compiler, PROGRAM, &options) {
                    plans.push((format!("{compiler} {options:?}"), plan_of(&data, None)));
                }
            }
        }
    }
    plans
}

fn cycle<'a>(case: &str, plan: &'a ProbePlan) -> &'a ExpirePlan {
    let function = plan.function(EXPIRE_CYCLE.description);
    function.and_then(|function| function.plan.expire()).unwrap_or_else(|| panic!("{case}: {:?}", plan.not_found))
}

fn lacks(plan: &ProbePlan, item: Item) -> bool {
    plan.not_found.iter().any(|missing| missing.item == item)
}

/// Checks what is true of every plan for the program.
fn check(case: &str, plan: &ProbePlan) {
    let ExpirePlan { starts, ends } = cycle(case, plan);
    assert!(!starts.is_empty() && !ends.is_empty(), "{case}: {:?}", plan.not_found);
    assert_eq!(starts[0].cycle_type.is_none(), lacks(plan, Item::CycleType), "{case}");
}

#[test]
fn the_keys_of_a_cycle_are_found_at_every_end() {
    for (case, plan) in plans(&LEVELS, &WHOLE) {
        check(&case, &plan);
        let ends = &cycle(&case, &plan).ends;
        let counts = |end: &CycleEndPlan| !matches!(end.sampled, Some(Operand::Constant(_)));
        assert!(ends.iter().any(counts), "{case}: no key is counted");
        assert!(ends.iter().all(|end| end.sampled.is_some() && end.expired.is_some()), "{case}: {ends:?}");
    }
}

/// gcc keeps the number of expired keys in a vector register.
#[test]
fn the_sampled_keys_are_found_in_code_for_another_processor() {
    for (compiler, target) in [("aarch64-linux-gnu-gcc", &[][..]), ("clang", &["--target=aarch64-linux-gnu"])] {
        for level in LEVELS {
            for form in &WHOLE[..3] {
                let options = [target, &[level, "-s"], *form].concat();
                let Some(data) = compile(compiler, PROGRAM, &options) else { continue };
                let (case, plan) = (format!("{compiler} {options:?}"), plan_of(&data, None));
                check(&case, &plan);
                let ends = &cycle(&case, &plan).ends;
                assert!(ends.iter().all(|end| end.sampled.is_some()), "{case}: {ends:?}");
                let is_lost = ends.iter().any(|end| end.expired.is_none());
                assert_eq!(is_lost, lacks(&plan, Item::KeysExpired), "{case}");
                assert!(compiler != "clang" || !is_lost, "{case}: {ends:?}");
            }
        }
    }
}

#[test]
fn the_keys_of_jobs_are_counted_only_where_they_are_told_from_fields() {
    let (mut counted, mut not_counted) = (0, 0);
    for (case, plan) in plans(&LEVELS, &JOBS) {
        check(&case, &plan);
        let planned = cycle(&case, &plan);
        if FunctionPlan::Expire(planned.clone()).counts_keys() {
            let jobs: Vec<_> = planned.starts.iter().map(|start| start.job.as_ref()).collect();
            let is_known = if case.contains("APART") {
                jobs == [0, 1].map(Operand::Constant).each_ref().map(Some)
            } else {
                matches!(jobs[..], [Some(_)])
            };
            assert!(is_known, "{case}: {jobs:?}");
            counted += 1;
            continue;
        }
        not_counted += 1;
        assert!(lacks(&plan, Item::KeysSampled), "{case}");
        assert!(lacks(&plan, Item::KeysExpired), "{case}");
    }
    assert!(counted > 0 && not_counted > 0, "{counted} {not_counted}");
}

/// Without optimisation the type stays where the caller's argument was stored.
#[test]
fn the_type_is_found_where_it_is_kept() {
    for (case, plan) in plans(&["-O0"], &[WHOLE[0], WHOLE[2], JOBS[0]]) {
        assert!(!lacks(&plan, Item::CycleType), "{case}");
    }
}

#[test]
fn a_cycle_needs_no_symbols() {
    for compiler in COMPILERS {
        for form in [WHOLE[2], JOBS[1]] {
            let options = [&["-O2", "-rdynamic"], form].concat();
            let Some(data) = compile(compiler, PROGRAM, &options) else { continue };
            let (case, whole) = (format!("{compiler} {options:?}"), plan_of(&data, None));
            let options = [&options[..], &["-s", "-Wl,--no-export-dynamic"]].concat();
            let stripped = compile(compiler, PROGRAM, &options).map(|data| plan_of(&data, None));
            let stripped = stripped.unwrap_or_else(|| panic!("{case}"));
            let found = (cycle(&case, &stripped), cycle(&case, &whole));
            // Without the dynamic symbols, everything is elsewhere.
            assert_eq!(found.0.ends, found.1.ends, "{case}");
        }
    }
}

/// A function that mentions the text and keeps no average is not the cycle.
#[test]
fn without_the_average_no_function_is_the_cycle() {
    for compiler in COMPILERS {
        let options = ["-O2", "-rdynamic", "-DWITHOUT_AVERAGE"];
        let Some(data) = compile(compiler, PROGRAM, &options) else { continue };
        assert_eq!(plan_of(&data, None).function(EXPIRE_CYCLE.description), None, "{compiler}");
    }
}
