//! What was asked for last.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many things are kept that nobody may use, and how long after they were last asked for.
const KEPT: usize = 16;
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// The things that were asked for last, the newest last.
pub struct Recent<T>(VecDeque<(Instant, Arc<T>)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Recent<T> {
    /// Keeps a thing that is asked for now.
    pub fn keep(&mut self, thing: &Arc<T>, now: Instant) {
        self.0.retain(|(asked, other)| now.duration_since(*asked) < KEPT_FOR && !Arc::ptr_eq(other, thing));
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, thing.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::{KEPT, KEPT_FOR, Recent};

    #[test]
    fn few_things_are_kept_and_not_for_long() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let things: Vec<_> = (0..=KEPT).map(Arc::new).collect();
        // The first is asked for again, so the second is the oldest.
        for thing in things[..KEPT].iter().chain([&things[0], &things[KEPT]]) {
            recent.keep(thing, now);
        }
        let kept = |thing: &Arc<usize>| Arc::strong_count(thing) > 1;
        assert_eq!(things.iter().filter(|thing| kept(thing)).count(), KEPT);
        assert!(!kept(&things[1]));
        recent.keep(&Arc::new(KEPT), now + KEPT_FOR);
        assert!(!things.iter().any(kept));
    }
}
