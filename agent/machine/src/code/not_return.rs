//! The functions of libc that do not return: what follows a call to one is something else.

/// Their names.
const FUNCTIONS: [&str; 3] = ["abort", "exit", "__stack_chk_fail"];

/// The prefix of the functions that report the address sanitizer's findings; those that end with
/// [`GOES_ON`] return.
const REPORTS: &str = "__asan_report_";
const GOES_ON: &str = "_noabort";

/// Returns whether a function of this name does not return.
pub fn is_named(name: &str) -> bool {
    let is_report = name.starts_with(REPORTS) && !name.ends_with(GOES_ON);
    is_report || FUNCTIONS.contains(&name)
}
