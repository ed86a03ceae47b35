//! The scenario `burst`, for the demo and for those who look at it through the agent.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use evictscope_testkit::{agent::Program, cores::Cores};

use crate::{
    judge::Finished,
    run::{Onlooker, carry_out},
    scenario::{Plan, Scenario},
    summary,
};

/// Makes one complete cycle, watched by the agent.
pub fn one_cycle(agent: Program, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = Cores::split()?;
    carry_out(&bursts(agent, 1), cores.as_ref(), None, interrupted)
}

/// Makes complete cycles, watched by the agent, and through it by `onlooker`.
///
/// A run that fails while something else used the server's core is no evidence, and is made once more.
///
/// # Errors
///
/// Fails where the agent and the record differ, where the onlooker finds a fault, and on Ctrl-C.
pub fn cycles_before(
    onlooker: &mut dyn Onlooker,
    agent: Program,
    cycles: usize,
    interrupted: &AtomicBool,
) -> Result<()> {
    let cores = Cores::split()?;
    let plan = bursts(agent, cycles);
    let mut attempt = || {
        let finished = carry_out(&plan, cores.as_ref(), Some(&mut *onlooker), interrupted)?;
        ensure!(!finished.outcome.interrupted, "interrupted");
        println!("\n{}", summary::outcome(&finished.outcome));
        let was_disturbed = finished.outcome.was_disturbed();
        let verdict = finished
            .must_agree(Scenario::Burst.kind_of_bursts())
            .and(finished.must_have_cycles(cycles))
            .and(finished.onlooker);
        Ok((verdict, was_disturbed))
    };
    match attempt()? {
        (Err(error), true) => {
            println!("{error:#}\nonce more, because something else used the server's core");
            attempt()?.0
        }
        (verdict, _) => verdict,
    }
}

fn bursts(agent: Program, cycles: usize) -> Plan {
    Plan {
        cycles: Some(cycles),
        ..Plan::new(Scenario::Burst, Some(agent))
    }
}
