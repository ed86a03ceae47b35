//! The candidate: the best key to evict in a server's eviction pool. The server evicts it next, unless it finds a
//! better one, as it often does. If the content does not fit the pool's layout, the candidate is not known.

use std::time::Duration;

const ENTRIES: usize = 16;
/// Words of 8 bytes in an entry: its order, its key, its place for a short key, and its database with other things.
const WORDS: usize = 4;
pub const POOL_BYTES: usize = 8 * ENTRIES * WORDS;
/// Idle times are whole seconds below this: `LRU_CLOCK_RESOLUTION` and `LRU_CLOCK_MAX` of server.h.
const IDLE_END: Duration = Duration::from_secs(1 << 24);

/// What a pool says about the best key in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// For how long it had not been used when the server took it into its pool.
    Idle(Duration),
    Ttl(Duration),
}

impl Candidate {
    /// Returns the candidate in the content of a pool while the server evicts by this policy. Idle times in it have
    /// this `unit`; `now` is since 1970. `None` if no key is in it, if the policy looks at neither idle times nor times
    /// to live, or if this is not a pool for it: it was being written, or the policy has just changed.
    pub fn in_pool(pool: &[u8; POOL_BYTES], policy: &str, unit: Duration, now: Duration) -> Option<Self> {
        let (words, _) = pool.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let (entries, _) = words.as_chunks::<WORDS>();
        let places: Vec<u64> = entries.iter().map(|[_, _, place, _]| *place).collect();
        let used = (entries.iter()).take_while(|[_, key, ..]| *key != 0).count();
        let (used, free) = entries.split_at(used);
        let is_whole = (entries.iter().enumerate()).all(|(index, [_, key, place, database])| {
            let is_own = key == place || !places.contains(key);
            *place != 0 && !places[..index].contains(place) && is_own && (*database as i32) >= 0
        });
        let is_ordered =
            used.is_sorted_by_key(|[order, ..]| order) && free.iter().all(|[order, key, ..]| (*order, *key) == (0, 0));
        if !is_whole || !is_ordered {
            return None;
        }
        let [order, ..] = used.last()?;
        Self::of(*order, policy, unit, now)
    }

    /// Returns its idle time, if the policy looks at that.
    pub fn idle(self) -> Option<Duration> {
        if let Self::Idle(idle) = self { Some(idle) } else { None }
    }

    /// Returns its time to live, if the policy looks at that.
    pub fn ttl(self) -> Option<Duration> {
        if let Self::Ttl(ttl) = self { Some(ttl) } else { None }
    }

    /// Returns the candidate with this `order`: its idle time, or `ULLONG_MAX` minus the time in milliseconds at which
    /// it expires.
    fn of(order: u64, policy: &str, unit: Duration, now: Duration) -> Option<Self> {
        match policy {
            "allkeys-lru" | "volatile-lru" => {
                let idle = Duration::from_millis(order.checked_mul(u64::try_from(unit.as_millis()).ok()?)?);
                let is_idle_time = idle.subsec_nanos() == 0 && idle < IDLE_END;
                is_idle_time.then_some(Self::Idle(idle))
            }
            "volatile-ttl" => {
                let expires = Duration::from_millis(i64::try_from(u64::MAX - order).ok()?.cast_unsigned());
                Some(Self::Ttl(expires.saturating_sub(now)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Candidate, ENTRIES, POOL_BYTES, WORDS};

    const NOW: Duration = Duration::from_secs(1_700_000_000);

    /// Returns a pool whose first entries have these orders; every second key is too long for its place.
    fn pool(order: &[u64]) -> Vec<[u64; WORDS]> {
        let entry = |index: usize| {
            let place = 0x7f00_0000 + 0x140 * index as u64;
            let key = place + 0x10_0000 * (index % 2) as u64;
            match order.get(index) {
                Some(order) => [*order, key, place, 3],
                None => [0, 0, place, 0],
            }
        };
        (0..ENTRIES).map(entry).collect()
    }

    fn read(entries: &[[u64; WORDS]], policy: &str) -> Option<Candidate> {
        read_in(Duration::from_millis(1), entries, policy)
    }

    fn read_in(unit: Duration, entries: &[[u64; WORDS]], policy: &str) -> Option<Candidate> {
        let mut bytes = [0; POOL_BYTES];
        let words = entries.iter().flatten();
        for (at, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *at = word.to_ne_bytes();
        }
        Candidate::in_pool(&bytes, policy, unit, NOW)
    }

    #[test]
    fn the_last_key_is_the_candidate() {
        let idle = pool(&[2_000, 2_000, 276_480_000]);
        let candidate = read(&idle, "allkeys-lru");
        assert_eq!(candidate, Some(Candidate::Idle(Duration::from_secs(276_480))));
        assert_eq!(read(&idle, "volatile-lru"), candidate);
        let in_seconds = pool(&[2, 255, 276_480]);
        let second = Duration::from_secs(1);
        assert_eq!(read_in(second, &in_seconds, "allkeys-lru"), candidate);
        assert_eq!(read_in(second, &pool(&[1 << 24]), "allkeys-lru"), None);
        assert!(read(&pool(&[1_000; ENTRIES]), "allkeys-lru").is_some());

        let ttl = |milliseconds| Some(Candidate::Ttl(Duration::from_millis(milliseconds)));
        let expire = pool(&[u64::MAX - 1_700_000_090_000, u64::MAX - 1_700_000_060_500]);
        assert_eq!(read(&expire, "volatile-ttl"), ttl(60_500));
        assert_eq!(read(&pool(&[u64::MAX - 1_699_999_999_000]), "volatile-ttl"), ttl(0));
    }

    #[test]
    fn what_is_no_pool_is_not_known() {
        let good = pool(&[1_000, 5_000]);
        assert!(read(&good, "allkeys-lru").is_some());
        for policy in ["allkeys-random", "allkeys-lfu", "noeviction", "volatile-ttl"] {
            assert_eq!(read(&good, policy), None, "{policy}");
        }
        assert_eq!(read(&pool(&[]), "allkeys-lru"), None, "no key is in it");
        for wrong in [&[5_000, 1_000][..], &[1_500], &[1_000 << 24], &[u64::MAX - 1_000]] {
            assert_eq!(read(&pool(wrong), "allkeys-lru"), None, "{wrong:?}");
        }
        let changes: [fn(&mut Vec<[u64; WORDS]>); 6] = [
            |pool| pool[9][2] = 0,
            |pool| pool[9][2] = pool[3][2],
            |pool| pool[1][1] = pool[5][2],
            |pool| pool[0][3] = 0xffff_ffff,
            |pool| pool[7][1] = 0x1234,
            |pool| pool[7][0] = 1_000,
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut changed = good.clone();
            change(&mut changed);
            assert_eq!(read(&changed, "allkeys-lru"), None, "change {index}");
        }
    }
}
