//! What evicting took in the lab, for a server that has not evicted yet.

/// Bytes that a key takes, and the CPU time of evicting it, nanoseconds: what
/// `evictscope_main_thread_cpu_seconds_total` grew by with each evicted key, medians of 5 rounds on a virtual machine
/// with Debian's Redis 7.0.15, strings of 16 to 64,000 bytes in 256 MB, and `allkeys-lru`.
const COSTS: [(f64, f64); 6] = [
    (120.0, 2_286.0),
    (315.0, 2_075.0),
    (1_117.0, 1_968.0),
    (4_200.0, 1_929.0),
    (16_533.0, 2_059.0),
    (65_867.0, 2_896.0),
];

/// Returns the CPU time for each evicted byte, seconds, if a key takes `key_bytes` on average.
pub fn of_a_byte(key_bytes: f64) -> f64 {
    let [first, .., last] = COSTS;
    let above = COSTS.partition_point(|(bytes, _)| *bytes < key_bytes);
    let ns = match above {
        0 => first.1,
        above if above == COSTS.len() => last.1,
        above => {
            let [(from, low), (to, high)] = [COSTS[above - 1], COSTS[above]];
            low + (high - low) * (key_bytes - from) / (to - from)
        }
    };
    ns / 1e9 / key_bytes
}

#[cfg(test)]
mod tests {
    use super::{COSTS, of_a_byte};

    #[test]
    fn between_two_sizes_it_is_between_their_costs() {
        for [(from, low), (to, high)] in COSTS.array_windows() {
            assert!(from < to);
            let key = |bytes: f64| of_a_byte(bytes) * bytes * 1e9;
            assert!((key(*from) - low).abs() < 1e-6 && (key(*to) - high).abs() < 1e-6);
            let middle = key((from + to) / 2.0);
            assert!((middle - (low + high) / 2.0).abs() < 1e-6, "{middle}");
        }
        let ends = [of_a_byte(1.0), of_a_byte(1e9)].map(|cost| cost * 1e9);
        assert!((ends[0] - COSTS[0].1).abs() < 1e-6);
        assert!(ends[1] * 1e9 <= COSTS[COSTS.len() - 1].1 + 1e-6);
    }
}
