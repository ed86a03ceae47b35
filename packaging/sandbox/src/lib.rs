//! Runs a program under what `evictscope.service` says, without systemd: as far as a process can be
//! put there by the kernel's own means. For the tests, which have no systemd to ask.
//!
//! A chain of programs, each of which executes the next one in the same process: `unshare` and a
//! shell (namespaces and mounts), `chroot`, `prlimit`, `setpriv` (user and capabilities), the caller's own executable,
//! which calls [`enter`] (filters of system calls), and the program.
//!
//! Not here: what needs control groups (MemoryMax, CPUQuota, TasksMax, device access); protections that
//! the missing capabilities give already (ProtectKernelModules, ProtectClock, ProtectKernelLogs,
//! RestrictSUIDSGID); RestrictRealtime and LockPersonality.

mod filter;
mod kept;
mod unit;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

pub use self::{kept::must_be_kept, unit::Unit};

/// The variable in which [`command`] hands over which system calls are allowed.
const ALLOWED: &str = "EVICTSCOPE_TEST_ALLOWED_CALLS";
/// For what is not installed: a user without any right of its own.
const NOBODY: &str = "64999";
/// What is found by its name, as systemd sets it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where what is taken along lies inside, as /tmp and /root are hidden.
const ENTRY: &str = "/srv/entry";
const STAND_IN: &str = "/srv/stand-in";

/// What the unit has switched on, and [`MOUNTS`] does. It also does `ProtectSystem=strict` and
/// `ProtectProc=invisible`.
const SWITCHED_ON: [&str; 8] = [
    "NoNewPrivileges",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateTmp",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectHostname",
    "ProtectKernelTunables",
];

/// Mounts as the unit asks for. $1 is what will be `/`; $2 and $3 are programs to take along, $3 may be
/// empty; $4 and $5 are OOMScoreAdjust and UMask; the rest is executed there.
const MOUNTS: &str = r#"
set -e
root=${1%/} entry=$2 stand_in=$3 oom=$4 mask=$5; shift 5
if [ -n "$root" ]; then
    mount --bind "$root" "$root"
    mount --rbind /sys "$root/sys"
fi
mount -t tmpfs -o mode=755 taken-along "$root/srv"
touch "$root/srv/entry" "$root/srv/stand-in"
mount --bind "$entry" "$root/srv/entry"
if [ -n "$stand_in" ]; then mount --bind "$stand_in" "$root/srv/stand-in"; fi
mount -t proc -o hidepid=invisible proc "$root/proc"
# PrivateDevices.
mount -t tmpfs -o mode=755,noexec dev "$root/dev"
for device in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
    mknod -m 666 "$root/dev/${device% *}" c 1 "${device#* }"
done
# ProtectSystem=strict, ProtectKernelTunables and ProtectControlGroups.
for tunables in sys irq fs; do
    mount --bind "$root/proc/$tunables" "$root/proc/$tunables"
    mount -o remount,bind,ro "$root/proc/$tunables"
done
for target in $(findmnt -rn -o TARGET); do
    case "$target" in
    "$root"/proc* | "$root"/dev*) ;;
    "$root" | "$root"/*) mount -o remount,bind,ro "$target" ;;
    esac
done
# ProtectHome and PrivateTmp.
for hidden in /home /root; do mount -t tmpfs -o mode=000,ro hidden "$root$hidden"; done
for own in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 own "$root$own"; done
echo "$oom" >"$root/proc/self/oom_score_adj"
umask "$mask"
exec chroot "$root/" "$@"
"#;

/// Where what the unit starts is.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// It is installed in this directory, which will be its `/`.
    Root(&'a Path),
    /// It is not installed: on this machine's `/`, this program stands for the unit's, and a user
    /// without rights of its own for the unit's.
    StandIn(&'a Path),
}

/// A command that becomes, in the same process, what the unit's `ExecStart` says, with `options` behind
/// it, under the restrictions of the unit. With the arguments `entry`, a `--` and some more, this
/// executable has to call [`enter`] with the latter.
///
/// # Errors
///
/// Where the unit says what is not understood here, or does not ask for what is done here; or without
/// systemd's `systemd-analyze`.
pub fn command(
    unit: &Unit,
    place: Place<'_>,
    entry: &[&str],
    options: &[&str],
) -> anyhow::Result<Command> {
    for name in SWITCHED_ON {
        ensure!(
            unit.is_on(name)?,
            "{name} is applied here and not in the unit"
        );
    }
    ensure!(unit.one("ProtectSystem")? == "strict" && unit.one("ProtectProc")? == "invisible");
    let bounding = capabilities(unit.one("CapabilityBoundingSet")?)?;
    let ambient = capabilities(unit.one("AmbientCapabilities")?)?;
    let (installed, arguments) = unit.start()?;
    let (root, stand_in, program, user, group) = match place {
        Place::Root(root) => {
            let (user, group) = (unit.one("User")?, unit.one("Group")?);
            (root, Path::new(""), installed, user, group)
        }
        Place::StandIn(program) => (Path::new("/"), program, STAND_IN, NOBODY, NOBODY),
    };

    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--ipc", "--uts", "--propagation", "private"])
        .args(["sh", "-c", MOUNTS, "sh"])
        .arg(root)
        .arg(this_program()?)
        .arg(stand_in)
        .args([unit.one("OOMScoreAdjust")?, unit.one("UMask")?])
        .arg("prlimit")
        .arg(format!("--nofile={}", unit.one("LimitNOFILE")?))
        .args(["setpriv", "--reuid", user, "--regid", group])
        .args(["--clear-groups", "--no-new-privs"])
        .args(["--bounding-set", &bounding])
        .args(["--inh-caps", &ambient, "--ambient-caps", &ambient])
        .arg(ENTRY)
        .args(entry)
        .args(["--", program])
        .args(arguments)
        .args(options)
        .env_clear()
        .env("PATH", PATH)
        .env(ALLOWED, Vec::from_iter(unit.system_calls()?).join(","));
    Ok(command)
}

/// In a process that [`command`] has started: puts it under the filters of system calls and executes
/// `command`. Returns without an error only in any other process, having done nothing.
///
/// # Errors
///
/// Where the kernel refuses a filter, or the program cannot be executed.
pub fn enter(command: &[String]) -> anyhow::Result<()> {
    let Ok(allowed) = std::env::var(ALLOWED) else {
        return Ok(());
    };
    let (program, arguments) = command.split_first().context("nothing to execute")?;
    let mut service = Command::new(program);
    service.args(arguments).env_remove(ALLOWED);
    filter::apply(&allowed)?;
    Err(service.exec()).with_context(|| format!("cannot execute {program}"))
}

/// `CAP_A CAP_B` as setpriv wants it.
fn capabilities(names: &str) -> anyhow::Result<String> {
    let names = names.split_whitespace().map(|name| {
        let name = name.strip_prefix("CAP_").context("not a capability")?;
        Ok(format!("+{}", name.to_lowercase()))
    });
    let names = names.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(format!("-all,{}", names.join(",")))
}

fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot tell which program this is")
}
