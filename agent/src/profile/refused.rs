//! What to do if the kernel refuses the event.

use std::io;

use evictscope_host::{Confinement, LINKS, MORE_FILES};
use evictscope_records::NoProfile;
use rustix::io::Errno;

/// The file with the setting that says who may open events.
const SETTING: &str = "/proc/sys/kernel/perf_event_paranoid";
/// The highest value at which CAP_PERFMON suffices. Debian and Ubuntu have higher ones, at which their kernels require
/// CAP_SYS_ADMIN.
const HIGHEST: i64 = 2;

/// Says why the main thread of a process cannot be sampled, and what to do.
pub fn refused(pid: u32, error: &io::Error) -> NoProfile {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    NoProfile(match number {
        Some(Errno::SRCH) => format!("process {pid} has ended"),
        Some(Errno::ACCESS | Errno::PERM) => not_permitted(setting()),
        Some(Errno::MFILE) => {
            format!("too many open files: {MORE_FILES}")
        }
        _ if error.kind() == io::ErrorKind::StorageFull => {
            "too many profiles are being taken at the same time: try again later".to_owned()
        }
        _ => format!("the kernel does not open the event that samples process {pid}: {error}"),
    })
}

/// Reads the setting; `None` if the kernel has none.
fn setting() -> Option<i64> {
    let text = std::fs::read_to_string(SETTING).ok()?;
    text.trim().parse().ok()
}

fn not_permitted(setting: Option<i64>) -> String {
    let refuses = "the kernel refuses the event that takes samples";
    let setting = match setting {
        Some(value) if value > HIGHEST => {
            return format!(
                "{refuses}, as kernel.perf_event_paranoid is {value}, where only CAP_SYS_ADMIN may open it: `sysctl kernel.perf_event_paranoid={HIGHEST}` (and a line in /etc/sysctl.d to keep it), or run evictscope with CAP_SYS_ADMIN"
            );
        }
        Some(value) => format!("kernel.perf_event_paranoid is {value}"),
        None => "there is no kernel.perf_event_paranoid".to_owned(),
    };
    let advice = Confinement::of_process().lacks_links(LINKS);
    format!("{refuses} ({setting}); {advice}")
}

#[cfg(test)]
mod tests {
    use super::not_permitted;

    #[test]
    fn the_setting_is_named_where_it_is_the_reason() {
        let debian = not_permitted(Some(3));
        assert!(debian.contains("kernel.perf_event_paranoid is 3"), "{debian}");
        assert!(debian.contains("sysctl kernel.perf_event_paranoid=2"), "{debian}");
        let other = not_permitted(Some(2));
        assert!(other.contains("paranoid is 2") && !other.contains("sysctl k"), "{other}");
    }
}
