//! What a process inherits of the one that started it: which signals it ignores or holds back.

use std::mem::MaybeUninit;

/// Makes signals mean what this program takes them to mean, whoever started it. Call it before any thread is started.
///
/// If SIGCHLD were ignored, nobody would hear how a planner ended, and if SIGXCPU were, its limit would not be told
/// from a kill. A signal that is held back, as SIGTERM may be, would never come. SIGXFSZ would end the agent because of
/// one file: a write beyond the limit fails anyway.
pub fn take_back_signals() {
    for (signal, action) in
        [(libc::SIGCHLD, libc::SIG_DFL), (libc::SIGXCPU, libc::SIG_DFL), (libc::SIGXFSZ, libc::SIG_IGN)]
    {
        // SAFETY: no handler is set, so no code of ours runs in a signal. That these signals exist is all that it
        // takes.
        unsafe { libc::signal(signal, action) };
    }
    let mut none = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills the set, which is read only then. The mask is this thread's, and there is no other
    // yet.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}
