//! evictscope: see `docs/ARCHITECTURE.md`.
#![allow(dead_code, unused_imports)]
mod binary;
fn main() {
    let data = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    let t = std::time::Instant::now();
    let plan = binary::plan(&data).unwrap();
    println!("{}", serde_json::to_string_pretty(&plan).unwrap());
    eprintln!("{:?}", t.elapsed());
}
mod probes;
mod telemetry;
