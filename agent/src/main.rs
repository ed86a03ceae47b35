//! evictscope: see `docs/ARCHITECTURE.md`.
fn main() {}
