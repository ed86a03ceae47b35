//! `cargo xtask demo`: one eviction burst on a throw-away redis-server, and what evictscope sees of it.
//!
//! The lab makes the cycle happen and prints its own record. Every other number comes from the agent. Everything
//! started here ends with the demo.

use anyhow::Result;
use evictscope_lab::{Testimony, beside, one_cycle};
use evictscope_testkit::process;
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::text::{bytes, count, known};

use crate::setup;

pub fn run() -> Result<()> {
    must_be_root("attach BPF programs")?;
    let agent = setup::build_for_tests()?;

    // Until here, Ctrl-C ends the set-up or the build at once.
    let interrupted = process::catch_ctrl_c()?;

    println!(
        "A throw-away redis-server is filled almost to its maxmemory, and loaded until its\n\
         main thread is busy half of the time. In about half a minute it is full: watch what happens then. This takes a minute in all.\n"
    );
    let run = one_cycle(agent, &interrupted)?;
    match &run.testimony {
        Some(testimony) => println!("\n{}\n{}", summary(testimony), beside(&run, testimony)),
        None => println!("\ninterrupted"),
    }
    if let Some(disturbance) = run.disturbance {
        println!(
            "This machine was busy with something else, so this may not be the intended burst: {disturbance}.\n\
             Run the demo again when less is running here.\n"
        );
    }
    println!("The load, the agent and the redis-server have ended.");
    Ok(())
}

fn summary(testimony: &Testimony) -> String {
    const EVICTING: [(&str, &str); 1] = [("kind", "evicting")];
    let reading = &testimony.reading;
    let mut text = "Summary, from /metrics alone:\n".to_owned();
    for (label, name, labels, form) in [
        ("evicting calls", "eviction_calls_total", &EVICTING[..], count as fn(f64) -> String),
        ("  all together", "eviction_call_duration_seconds_sum", &EVICTING, seconds),
        ("  longest", "eviction_call_longest_seconds", &[], |longest| format!("{:.1} ms", longest * 1e3)),
        ("evicted keys", "evicted_keys_total", &[], count),
        ("clients stalled", "stall_seconds_total", &[], seconds),
        ("client buffers, peak", "client_buffers_peak_bytes", &[], |peak| bytes(peak as u64)),
        ("probes cost, last 10 s", "overhead_ratio", &[], |share| format!("{:.2} %", share * 100.0)),
    ] {
        let value = reading.sum(&format!("evictscope_{name}"), labels);
        text += &format!("  {label:<28}{}\n", known(value.ok(), form));
    }
    text
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.1} s")
}
