//! `evictscope trace`: the latency of one function of a server.

use std::process::ExitCode;
use std::time::Duration;

use evictscope_telemetry::OverheadBudget;

use super::arguments::{DebugDirs, parse_duration};
use crate::trace::{self, TraceRequest};

/// Show how long the calls of one function of a server take: a histogram each second, or with --slower each slow
/// call
///
/// FUNCTION is a function's name, if the executable or its debug file has it, or a command that it implements, such as
/// GET or CONFIG|GET: that works in stripped servers, too. Calls of all threads are counted; if a function calls
/// itself, only the outermost call.
///
/// Two probes are placed, at the entry and at the return. First, what a call costs is measured, and how often the
/// function is called. If that is more than the budget, the probes are on for part of the time, and the output says
/// which part was observed. When evictscope ends, however it does, the probes are gone. It may run beside `evictscope
/// run`.
///
/// Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (before Linux 6.6, CAP_SYS_ADMIN as
/// well).
///
/// Exit code 0 also if the process ends first, 1 if the function is not found or cannot be traced. docs/TOUR.md
/// explains the output.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process id of a running server
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,
    /// Name of the function, or of a command
    function: String,
    /// For how long to look, in seconds
    #[arg(long, default_value = "30", value_parser = parse_seconds)]
    seconds: Duration,
    /// Show each call that takes longer, with its unit: 100us, 1ms, 0.5s. Says whether an evicting call or an expire
    /// cycle began in it. No histograms then
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    slower: Option<Duration>,
    /// Share of one thread's time that the probes may cost
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_budget)]
    overhead_budget: OverheadBudget,
    #[command(flatten)]
    debug_dirs: DebugDirs,
}

/// The longest trace: a day.
const MAX_SECONDS: f64 = 86_400.0;

fn parse_seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("not a number of seconds from 0.1 to 86400")
}

fn parse_budget(text: &str) -> anyhow::Result<OverheadBudget> {
    let budget: OverheadBudget = text.parse()?;
    anyhow::ensure!(budget.share() > 0.0, "nothing can be traced then: allow 1%, for example");
    Ok(budget)
}

/// Traces until the time is over, the process ends, or a signal comes.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    trace::answer(&TraceRequest {
        pid: arguments.pid,
        function: arguments.function,
        length: arguments.seconds,
        slower: arguments.slower,
        budget: arguments.overhead_budget,
        debug_dirs: arguments.debug_dirs.debug_dir,
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parse_budget, parse_seconds};

    #[test]
    fn a_trace_is_from_a_tenth_of_a_second_to_a_day_long() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2_500)));
        for text in ["0", "-1", "nan", "1e9", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_can_be_traced_for_nothing() {
        let share = |text| parse_budget(text).ok().map(|budget| budget.share());
        assert_eq!(share("2%"), Some(0.02));
        for text in ["0%", "0", "-1%", "x"] {
            assert_eq!(share(text), None, "{text}");
        }
    }
}
