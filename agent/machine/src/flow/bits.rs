//! Numbers of fewer than 64 bits.

/// Returns the low `bits` bits.
pub fn low_bits(value: u64, bits: u64) -> u64 {
    match bits {
        0..64 => value & ((1 << bits) - 1),
        _ => value,
    }
}

/// Returns the low `bits` bits, at least one, as a signed number.
pub fn sign_extended(value: u64, bits: u64) -> i64 {
    let shift = 64_u64.saturating_sub(bits);
    (value << shift).cast_signed() >> shift
}
