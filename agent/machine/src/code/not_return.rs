//! The functions of libc that do not return: what follows a call of them is something else.

/// Their names.
const FUNCTIONS: [&str; 3] = ["abort", "exit", "__stack_chk_fail"];

/// What functions report to that the address sanitizer found something begins with this; what ends
/// with [`GOES_ON`] returns.
const REPORTS: &str = "__asan_report_";
const GOES_ON: &str = "_noabort";

/// Returns whether a function of that name does not return.
pub fn is_named(name: &str) -> bool {
    let is_report = name.starts_with(REPORTS) && !name.ends_with(GOES_ON);
    is_report || FUNCTIONS.contains(&name)
}
