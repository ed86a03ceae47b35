//! What the log says of one server.

use std::path::PathBuf;
use std::time::Duration;

use evictscope_host::ServerProcess;
use evictscope_model::{Lost, UnixTime};
use evictscope_plan::ProbePlan;
use evictscope_records::{Ending, RecordId};
use evictscope_telemetry::{Burst, BurstKind, ProbeMode, Withdrawal};

use crate::clock::since_1970;

/// Shorter plain bursts are logged only at level debug: a small cache at its limit may have one every
/// few seconds forever.
const WORTH_A_LINE: Duration = Duration::from_millis(100);

/// Logs something about a server.
macro_rules! log {
    ($log:ident, $level:ident, $($said:tt)+) => {
        tracing::$level!(pid = $log.pid, server = $log.server, $($said)+)
    };
}

/// Logs what happens to a server. A lasting condition is logged once.
pub struct ServerLog {
    pid: u32,
    server: String,
    /// Its executable, as the server saw it.
    exe: PathBuf,
    /// Why probes could not be placed.
    not_placed: Option<String>,
    /// Why its memory could not be read.
    not_read: Option<String>,
}

impl ServerLog {
    pub fn new(server: &str, process: &ServerProcess) -> Self {
        Self {
            pid: process.identity.pid,
            server: server.to_owned(),
            exe: process.exe.clone(),
            not_placed: None,
            not_read: None,
        }
    }

    /// Logs how many probes are attached, how many breakpoints of others are there, and which items are not exported.
    pub fn attached(&self, plan: &ProbePlan, probes: usize, mode: ProbeMode, breakpoints: usize) {
        let (pid, version) = (self.pid, &plan.identity.version);
        match probes {
            0 => log!(self, warn, version, "watched without probes: evicting calls are not seen"),
            _ => log!(self, info, version, probes, %mode, "attached"),
        }
        if breakpoints > 0 {
            let whose = "of another tool, or left by one that was killed";
            log!(self, warn, breakpoints, "there are breakpoints in its code: {whose}");
        }
        for missing in &plan.not_found {
            let (item, reason) = (&missing.item, &missing.reason);
            let Lost { metrics, alerts } = item.lost();
            let (metrics, alerts) = (metrics.join(", "), alerts.join(", "));
            log!(
                self,
                warn,
                lost_metrics = metrics,
                lost_alerts = alerts,
                "{item} was not found: {reason}; `evictscope inspect {pid}` says what would help"
            );
        }
    }

    pub fn stays_out_of_every_call(&self) {
        log!(
            self,
            info,
            "stays out of every-call mode: its counter of commands was not found, so what every-call mode would cost \
             is not known; --probe-mode every-call chooses it all the same"
        );
    }

    pub fn leaves_out_cycles(&self) {
        let why = "their probes alone cost more than --overhead-budget allows";
        log!(self, warn, "expire cycles are no longer timed: {why}");
    }

    /// Logs how it has ended; `None` if it executes another program.
    pub fn ended(&self, ending: Option<Ending>) {
        match ending {
            None => log!(self, info, "server has ended: it executes a program anew"),
            Some(ending) if ending.is_clean() || ending == Ending::Unknown => {
                log!(self, info, "server has ended: it {ending}");
            }
            Some(ending) => log!(self, warn, "server has ended: it {ending}; {}", ending.why()),
        }
    }

    pub fn read(&mut self, failed: Option<String>) {
        if failed == self.not_read {
            return;
        }
        match &failed {
            Some(why) => log!(self, warn, "{why}"),
            None => log!(self, info, "its memory can be read again"),
        }
        self.not_read = failed;
    }

    /// Logs that its counters of commands are not what they seem.
    pub fn commands_wrong(&self) {
        log!(
            self,
            warn,
            "the counters of its commands know of more calls than it has executed, so which commands took its time is not \
             known; please report this with the output of `evictscope inspect {} --json`",
            self.pid
        );
    }

    /// Logs that the probes of another mode are placed.
    pub fn mode(&self, mode: ProbeMode) {
        log!(self, info, %mode, "the probe mode follows what the probes cost");
    }

    /// Logs that probes cannot be placed, and in which mode the server stays; `None` once they can.
    pub fn placed(&mut self, failed: Option<(ProbeMode, String)>) {
        if let Some((mode, why)) = &failed
            && self.not_placed.as_ref() != Some(why)
        {
            log!(self, warn, "stays in {mode} mode: {why}");
        }
        self.not_placed = failed.map(|(_, why)| why);
    }

    pub fn not_run(&self, withdrawal: &Withdrawal) {
        log!(
            self,
            error,
            check = %withdrawal.broken,
            "its evicting calls and expire cycles are not seen: it does not run the code that its executable leads to \
             ({} of {} probes are not in its memory), so the probes are off. Either the executable, on an overlay, was changed \
             while it ran, if only its times or its owner, or the server has moved its code to memory of its own. Restart \
             it; code that it moves cannot be probed. All else is still exported",
            withdrawal.failed,
            withdrawal.tested,
        );
    }

    /// Logs that `part` of its `plan` was withdrawn, and what is `lost`.
    pub fn withdrawn(&self, part: &str, plan: &ProbePlan, withdrawal: &Withdrawal, lost: &str) {
        let (pid, tested) = (self.pid, withdrawal.broken.tested());
        log!(
            self,
            error,
            exe = %self.exe.display(),
            build_id = plan.identity.build_id.as_deref().unwrap_or("none"),
            check = %withdrawal.broken,
            "{part} is wrong for this server and was withdrawn: {}, at {} of {} {tested}. {lost}; \
             please report this with the output of `evictscope inspect {pid} --json`",
            withdrawal.broken.meaning(),
            withdrawal.failed,
            withdrawal.tested,
        );
    }

    /// Logs a finished burst in one line, with the name of its record. The rest is at `/api/v1/bursts`.
    pub fn burst(&self, burst: &Burst, record: Option<&RecordId>) {
        let (kind, reason) = burst.kind();
        macro_rules! log_burst {
            ($level:ident) => {
                log!(
                    self,
                    $level,
                    %kind,
                    record = record.map(RecordId::as_str),
                    start = UnixTime::new(since_1970() + burst.started).map(|time| time.to_string()),
                    duration_seconds = burst.duration.as_secs_f64(),
                    evicted_keys = burst.evicted_keys,
                    stalled_seconds = burst.stalled.map(|stalled| stalled.as_secs_f64()),
                    hint = burst.expiry_behind(),
                    "burst: {reason}"
                )
            };
        }
        match kind {
            BurstKind::SelfAmplifying => log_burst!(warn),
            BurstKind::Plain if burst.duration < WORTH_A_LINE => log_burst!(debug),
            BurstKind::Stalling | BurstKind::Plain | BurstKind::Unknown => log_burst!(info),
        }
    }
}
