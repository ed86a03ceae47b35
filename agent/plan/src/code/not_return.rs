//! The functions of Redis and libc that do not return: what follows a call of them is something else.

/// Their names, and the texts that only they mention, by which a file without symbols has them too.
/// Hundreds of functions call them, so no compiler inlines them.
pub const FUNCTIONS: [(&str, &[&str]); 5] = [
    (
        "_serverAssert",
        &["=== ASSERTION FAILED ===", "=== %sASSERTION FAILED ==="],
    ),
    ("_serverPanic", &["Guru Meditation: %s #%s:%d"]),
    ("abort", &[]),
    ("exit", &[]),
    ("__stack_chk_fail", &[]),
];
