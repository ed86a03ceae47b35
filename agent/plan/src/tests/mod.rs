//! Plans of real executables, whole and broken.

mod nameless;

use crate::plan;
use crate::plan::{Confidence, Method, ProbePlan};

/// Debian's redis-server, where it is installed.
fn redis_server() -> Option<Vec<u8>> {
    let data = std::fs::read("/usr/bin/redis-server").ok();
    if data.is_none() {
        println!("skipped: /usr/bin/redis-server is not installed");
    }
    data
}

fn plan_of(data: &[u8]) -> ProbePlan {
    plan(data, None).unwrap_or_else(|error| panic!("no plan: {error}"))
}

#[test]
fn debians_stripped_server_is_planned_for_without_a_refusal() {
    let Some(data) = redis_server() else { return };
    let plan = plan_of(&data);
    assert_eq!(plan.refusals, []);
    assert!(plan.is_certain());
    assert_eq!(plan.product.as_deref(), Some("redis"));

    for variable in &plan.variables {
        assert_eq!(
            variable.confidence,
            Confidence::Certain,
            "{}",
            variable.name
        );
        assert_eq!(variable.method, Method::Dataflow, "{}", variable.name);
        assert!(variable.recipe.is_some(), "{}", variable.name);
    }
    for name in [
        "used_memory",
        "maxmemory",
        "port",
        "maxclients",
        "maxmemory_policy",
        "stat_numcommands",
        "stat_evictedkeys",
        "stat_expiredkeys",
        "stat_clients_type_memory",
    ] {
        assert!(
            plan.members.iter().any(|member| member.name == name),
            "{name}"
        );
    }
}

#[test]
fn every_probe_sits_where_the_kernel_emulates() {
    let Some(data) = redis_server() else { return };
    let plan = plan_of(&data);
    let sites =
        [&plan.sites.entry, &plan.sites.goal].map(|site| site.as_ref().map(|site| site.emulated));
    assert_eq!(sites, [Some(true), Some(true)]);
    assert!(!plan.sites.done.is_empty());
    for done in &plan.sites.done {
        assert!(done.site.emulated, "{:?}", done.site);
        assert!(done.result.is_some(), "{:?}", done.site);
    }
}

#[test]
fn a_plan_is_the_same_every_time() {
    let Some(data) = redis_server() else { return };
    assert_eq!(plan_of(&data), plan_of(&data));
}

#[test]
fn an_executable_without_redis_is_refused_by_name() {
    let own = std::env::current_exe().and_then(std::fs::read);
    let plan = plan_of(&own.unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(plan.refusals.len(), 1);
    assert_eq!(plan.refusals[0].what, "eviction_call");
    assert!(!plan.is_certain());
}

/// Whatever the bytes are, planning ends with a plan or an error.
#[test]
fn cut_and_damaged_files_do_no_harm() {
    let Some(data) = redis_server() else { return };
    for cut in (0..64).map(|part| data.len() * part / 64).chain(0..80) {
        let _ = plan(&data[..cut], None);
    }
    // Damage, but always the same: in the headers and tables at both ends, and in the function.
    let whole = plan_of(&data);
    let function = usize::try_from(whole.functions[0].address).unwrap_or(0);
    let places = (0..512)
        .chain(data.len() - 2048..data.len())
        .chain(function..function + 2048);
    let mut changed_plans = 0;
    for (round, place) in places.step_by(61).enumerate() {
        let mut damaged = data.clone();
        damaged[place] ^= 1 << (round % 8);
        if let Ok(plan) = plan(&damaged, None) {
            changed_plans += usize::from(plan != whole);
        }
    }
    assert!(changed_plans > 0, "no damage had any effect");
}
