//! Plans of real executables, whole and broken.

mod eviction;
mod expire;
mod nameless;

use evictscope_testkit::skip::skip;

use crate::{EVICTION_CALL, Item, ProbePlan, Reason, TRACED, TracedFunction, plan};

/// The program with an eviction call, whose calculation is a function of its own, or inlined.
const EVICTION_PROGRAM: &str = "#include \"evict.c\"\n";
const CALLED: &str = "-DFORM=__attribute__((noinline))";
const INLINED: &str = "-DFORM=static inline __attribute__((always_inline))";

/// Returns Debian's redis-server, if it is installed.
fn redis_server() -> Option<Vec<u8>> {
    let data = std::fs::read("/usr/bin/redis-server").ok();
    if data.is_none() {
        skip("/usr/bin/redis-server is not installed").unwrap_or_else(|error| panic!("{error}"));
    }
    data
}

pub fn plan_of(data: &[u8], debug: Option<&[u8]>) -> ProbePlan {
    plan(data, debug).unwrap_or_else(|error| panic!("no plan: {error}"))
}

pub fn eviction_call(plan: &ProbePlan) -> &TracedFunction {
    plan.function(EVICTION_CALL.description).unwrap_or_else(|| panic!("{:?}", plan.not_found))
}

#[test]
fn an_executable_without_redis_has_no_eviction_call() {
    let executable = std::env::current_exe().and_then(std::fs::read);
    let plan = plan_of(&executable.unwrap_or_else(|error| panic!("{error}")), None);
    assert_eq!(plan.not_found.len(), TRACED.len());
    assert!(matches!(plan.not_found[0].item, Item::Function(_)));
    assert_eq!(plan.unusable_reason(), Some(&plan.not_found[0].reason));
    assert_eq!(plan.functions, []);
}

#[test]
fn the_loader_is_named_as_such() {
    let Ok(data) = std::fs::read("/lib64/ld-linux-x86-64.so.2") else { return };
    let plan = plan_of(&data, None);
    assert!(plan.unusable_reason().is_some_and(|why| why.to_string().contains("loader")), "{:?}", plan.not_found);
}

/// UPX leaves its mark after the program headers.
#[test]
fn a_packed_executable_is_named_as_such() {
    let Some(mut data) = redis_server() else { return };
    let headers = usize::from(data[0x38]);
    let mark = 0x40 + 0x38 * headers + 4;
    data[mark..mark + 4].copy_from_slice(b"UPX!");
    assert_eq!(plan_of(&data, None).unusable_reason(), Some(&Reason::Packed));
}
