//! The traced functions: what each one is, and where its probes go.

pub mod eviction;
