//! The registers of the thread that a program runs in, as the kernel passes them. The verifier allows no variable
//! offset into a context, so each is read by itself.
#![allow(dead_code, reason = "an object uses only some of it")]

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(not(bpf_target_arch = "aarch64"))]
mod x86_64;

#[cfg(bpf_target_arch = "aarch64")]
pub use self::aarch64::*;
#[cfg(not(bpf_target_arch = "aarch64"))]
pub use self::x86_64::*;
