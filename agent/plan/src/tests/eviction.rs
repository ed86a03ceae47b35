//! Small programs, in the forms that compilers give to the calculation of the goal, and the exits of their evicting
//! calls.
//!
//! The reference is what DWARF says about the same variables. Compilers that are not installed are skipped.

use evictscope_abi::VARIABLES;
use evictscope_machine::code::FunctionCode;
use evictscope_machine::elf::Image;
use evictscope_machine::flow::Execution;
use evictscope_testkit::compiler::compile;

use super::{CALLED, EVICTION_PROGRAM as PROGRAM, INLINED, eviction_call, plan_of};
use crate::traced::eviction::pool;
use crate::{EVICTION_CALL, Method, Operand};

/// Those that optimise.
const LEVELS: [&str; 4] = ["-O1", "-O2", "-O3", "-Os"];

/// Compiles the program in one form, and returns for each variable how it was found.
fn methods(compiler: &str, options: &[&str]) -> Option<Vec<Option<Method>>> {
    let options = [&["-g", "-rdynamic"], options].concat();
    let plan = plan_of(&compile(compiler, PROGRAM, &options)?, None);
    let function = eviction_call(&plan);
    Some(VARIABLES.map(|variable| function.quantity(variable).map(|planned| planned.method)).to_vec())
}

/// Tests that are merged into one branch, a sum over threads and a tail call, and an entry that calls a profiler.
#[test]
fn both_methods_find_all_variables_of_a_called_calculation() {
    for form in [&["-DMERGED"][..], &["-DTHREADS", "-DTAIL"], &["-pg"]] {
        for (compiler, level) in ["gcc", "clang"].into_iter().flat_map(|compiler| LEVELS.map(|level| (compiler, level)))
        {
            let options = [&[level, CALLED], form].concat();
            if let Some(methods) = methods(compiler, &options) {
                let both = vec![Some(Method::Both); VARIABLES.len()];
                assert_eq!(methods, both, "{compiler} {options:?}");
            }
        }
    }
}

/// Valkey 8 lets paused clients go on first, and link-time optimisation inlines that.
#[test]
fn a_loop_with_calls_before_the_calculation() {
    for (compiler, form) in
        ["gcc", "clang"].into_iter().flat_map(|compiler| [CALLED, INLINED].map(|form| (compiler, form)))
    {
        let options = ["-O2", "-DPAUSES", form];
        if let Some(methods) = methods(compiler, &options) {
            // Inlined code may keep neither mem_reported nor overhead.
            let goal = &methods[2..];
            assert!(goal.iter().all(|method| *method == Some(Method::Both)), "{compiler} {options:?}: {methods:?}");
        }
    }
}

/// clang -O1 makes inlined code return a number, which it then tests, and gives the variables no
/// location while they are alive.
#[test]
fn a_decision_that_comes_as_a_number() {
    for form in [&[INLINED][..], &[INLINED, "-DMERGED"]] {
        let options = [&["-O1"], form].concat();
        if let Some(methods) = methods("clang", &options) {
            // Not every clang keeps mem_reported and overhead.
            let goal = &methods[2..];
            assert!(goal.iter().all(Option::is_some), "{form:?}: {methods:?}");
        }
    }
}

/// The checks of the address sanitizer end in calls that do not return. In code that only evicting calls reach,
/// mem_reported and overhead are no longer kept.
#[test]
fn checks_of_every_access() {
    if let Some(methods) = methods("gcc", &["-O2", INLINED, "-fsanitize=address"]) {
        assert!(methods[2..].iter().all(Option::is_some), "{methods:?}");
    }
}

/// Returns what holds the result at each exit, for each way of compiling the program that lets the goal be found.
fn results(define: &str) -> Vec<(String, Vec<Option<Operand>>)> {
    let mut found = Vec::new();
    for compiler in ["gcc", "clang"] {
        for level in LEVELS {
            for form in [CALLED, INLINED] {
                let options = [level, form, define, "-s"];
                let Some(data) = compile(compiler, PROGRAM, &options) else { continue };
                let plan = plan_of(&data, None);
                let Some(function) = plan.function(EVICTION_CALL.description) else { continue };
                if function.has_inner_site() {
                    let results = function.span.exits.iter().map(|exit| exit.result.clone());
                    found.push((format!("{compiler} {options:?}"), results.collect()));
                }
            }
        }
    }
    found
}

/// The pool is loaded before the loops, and kept in a stack slot, or its first entry is looked at behind a test.
#[test]
fn the_pool_is_found_wherever_its_address_is_kept() {
    let source = "struct entry { unsigned long long idle; char *key, *cached; int dbid, slot; } *EvictionPoolLRU;
         __attribute__((noinline)) int state(long *tofree) { return --*tofree > 0; }
         __attribute__((noinline)) int populate(struct entry *pool) { return pool->dbid; }
         int performEvictions(void) {
             long tofree = 9;
             while (state(&tofree)) {
                 struct entry *pool = EvictionPoolLRU;
                 char *best = 0;
                 while (!best && populate(pool))
                     for (int k = 15; k >= 0 && !best; k--)
                         if (pool[k].key) best = pool[k].key, pool[k].key = 0;
             }
             return tofree;
         }
         int main(void) { return performEvictions(); }";
    for (compiler, level) in [("gcc", "-O0"), ("gcc", "-Og"), ("clang", "-O0"), ("clang", "-O2"), ("clang", "-Oz")] {
        let Some(data) = compile(compiler, source, &[level]) else { continue };
        let image = Image::parse(&data).unwrap_or_else(|error| panic!("{error}"));
        let function = image.symbols.function("performEvictions").unwrap_or_else(|| panic!("no function"));
        let code = FunctionCode::decode(&image, function.address).unwrap_or_else(|error| panic!("{error}"));
        let expected = image.symbols.object("EvictionPoolLRU").map(|symbol| symbol.address);
        assert_eq!(pool(&mut Execution::run(&code)), expected, "{compiler} {level}");
    }
}

#[test]
fn every_evicting_call_ends_where_its_result_is_known() {
    // Before 6.2 a call fails with `C_ERR`; 2 is not one of its results.
    let before_6_2 = [0, u32::MAX.into()];
    for (define, possible) in [("-DNOTHING", None), ("-DREFUSES", None), ("-DBEFORE_6_2", Some(before_6_2))] {
        for (case, results) in results(define) {
            assert!(!results.is_empty(), "{case}");
            for result in &results {
                let is_possible = |number: &i64| possible.is_none_or(|possible: [i64; 2]| possible.contains(number));
                let is_right = match result {
                    Some(Operand::Constant(number)) => is_possible(number),
                    other => other.is_some(),
                };
                assert!(is_right, "{case}: {results:?}");
            }
        }
    }
}

#[test]
fn without_optimisation_the_result_outlasts_calls_in_a_stack_slot() {
    let Some(data) = compile("gcc", PROGRAM, &["-O0", CALLED, "-DNOTES", "-s"]) else { return };
    let plan = plan_of(&data, None);
    let results: Vec<_> = eviction_call(&plan).span.exits.iter().map(|exit| &exit.result).collect();
    assert!(matches!(results[..], [Some(Operand::Memory { .. })]), "{results:?}");
}
