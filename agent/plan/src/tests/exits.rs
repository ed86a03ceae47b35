//! The exits of evicting calls in small programs, by several compilers.

use evictscope_testkit::compiler::compile;

use super::plan_of;
use crate::{EVICTION_CALL, Operand};

const PROGRAM: &str = "#include \"evict.c\"\n";
const FORMS: [&str; 2] = ["-DFORM=__attribute__((noinline))", "-DFORM=static inline __attribute__((always_inline))"];

/// Returns what holds the result at each exit, for each way of compiling the program that lets the goal be found.
fn results(define: &str) -> Vec<(String, Vec<Option<Operand>>)> {
    let mut found = Vec::new();
    for compiler in ["gcc", "clang"] {
        for level in ["-O1", "-O2", "-O3", "-Os"] {
            for form in FORMS {
                let options = [level, form, define, "-s"];
                let Some(data) = compile(compiler, PROGRAM, &options) else {
                    continue;
                };
                let plan = plan_of(&data, None);
                let Some(function) = plan.function(EVICTION_CALL.description) else {
                    continue;
                };
                if function.has_inner_site() {
                    let results = function.span.exits.iter().map(|exit| exit.result.clone());
                    found.push((format!("{compiler} {options:?}"), results.collect()));
                }
            }
        }
    }
    found
}

#[test]
fn every_evicting_call_ends_where_its_result_is_known() {
    for (case, results) in ["-DNOTHING", "-DREFUSES"].into_iter().flat_map(results) {
        assert!(!results.is_empty(), "{case}");
        assert!(results.iter().all(Option::is_some), "{case}: {results:?}");
    }
}

/// Such a call fails with `C_ERR`; 2 is not one of its results.
#[test]
fn before_6_2_a_call_fails_with_another_number() {
    let found = results("-DBEFORE_6_2");
    for (case, results) in &found {
        assert!(!results.is_empty(), "{case}");
        assert!(results.iter().all(Option::is_some), "{case}: {results:?}");
    }
    let constants = found.iter().flat_map(|(_, results)| results.iter().flatten());
    let constants: Vec<i64> = constants
        .filter_map(|result| match result {
            Operand::Constant(number) => Some(*number),
            _ => None,
        })
        .collect();
    let possible = [0, i64::from(u32::MAX)];
    assert!(constants.iter().all(|number| possible.contains(number)), "{constants:?}");
}
