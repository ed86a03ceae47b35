//! A server that is excluded is left alone.

use anyhow::ensure;
use evictscope_testkit::{agent::Agent, code::Code, own_build::OwnBuild};

#[test]
#[ignore = "needs root and BPF"]
fn an_excluded_server_has_no_breakpoint_and_no_series() -> anyhow::Result<()> {
    let own = OwnBuild::of_redis()?;
    let (excluded, other) = (own.start(&[])?, own.start(&[])?);
    let port = format!("port={}", excluded.port());
    let options = [&own.only(), "--probe-mode", "every-call", "--exclude", &port];
    let agent = Agent::watching(&other, &options)?;
    // The scan that finds this one sees the excluded one once more.
    agent.watches(&own.start(&[])?)?;

    let changed = Code::of(other.pid())?.changed()?;
    ensure!(!changed.is_empty(), "no breakpoint in the other server");
    let changed = Code::of(excluded.pid())?.changed()?;
    ensure!(changed.is_empty(), "the excluded server has {changed:?}");
    let page = agent.get("/metrics")?;
    let of_server = format!("server=\"{}", excluded.name());
    ensure!(!page.contains(&of_server), "{page}");
    let log = agent.log()?;
    let said = log.matches(&format!("left alone because of --exclude {port}")).count();
    ensure!(said == 1, "{log}");
    Ok(())
}
