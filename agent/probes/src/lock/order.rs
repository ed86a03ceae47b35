//! Tries the sequence lock with every order in which a processor may make the accesses of a program and of the agent.
//!
//! Each thread makes its accesses in any order that its processor's memory model allows, one at a time, and all others
//! see each at once: x86-64 and aarch64 are both multi-copy atomic. Nothing here runs on a real processor, so what
//! fails here may never be seen to fail there, and what holds here holds on each that keeps to its model.

use std::collections::HashSet;

const BEGUN: usize = 0;
const FINISHED: usize = 1;
const DATA: [usize; 2] = [2, 3];
/// How many updates the program makes.
const UPDATES: u8 = 2;

/// What one thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Store(usize, u8),
    /// Others see it after all that was stored before.
    StoreLast(usize, u8),
    /// Loads to the register with the number of the place.
    Load(usize),
    /// It comes before all that is loaded later.
    LoadFirst(usize),
    /// Keeps all that is before it before all that is behind it.
    Barrier,
    /// Keeps all loads that are before it before all that is behind it.
    LoadBarrier,
}

impl Step {
    fn place(self) -> Option<usize> {
        match self {
            Self::Store(place, _) | Self::StoreLast(place, _) | Self::Load(place) | Self::LoadFirst(place) => {
                Some(place)
            }
            Self::Barrier | Self::LoadBarrier => None,
        }
    }

    fn is_load(self) -> bool {
        matches!(self, Self::Load(_) | Self::LoadFirst(_))
    }
}

#[derive(Clone, Copy, Debug)]
enum Model {
    /// Only a load may come before a store that is before it.
    X86,
    Arm,
}

impl Model {
    /// Returns whether `first` stays before `then`, which is behind it.
    fn keeps(self, first: Step, then: Step) -> bool {
        let is_same = first.place().is_some() && first.place() == then.place();
        let is_barrier = |step| step == Step::Barrier;
        let is_weak = match self {
            Self::X86 => !first.is_load() && then.is_load(),
            Self::Arm => {
                let acquires = matches!(first, Step::LoadFirst(_) | Step::LoadBarrier);
                let releases = matches!(then, Step::StoreLast(..)) || (first.is_load() && then == Step::LoadBarrier);
                !acquires && !releases
            }
        };
        is_same || is_barrier(first) || is_barrier(then) || !is_weak
    }
}

/// What the program does (`order.rs` of the programs).
fn program() -> Vec<Step> {
    let update = |number| {
        let [one, other] = DATA.map(|place| Step::Store(place, number));
        [Step::Store(BEGUN, number), Step::Barrier, one, other, Step::StoreLast(FINISHED, number)]
    };
    (1..=UPDATES).flat_map(update).collect()
}

/// What `whole` does.
fn agent() -> Vec<Step> {
    let [one, other] = DATA.map(Step::Load);
    vec![Step::LoadFirst(FINISHED), other, one, Step::LoadBarrier, Step::Load(BEGUN)]
}

/// Returns the steps without a rule about their order.
fn without(rule: fn(&Step) -> bool, steps: Vec<Step>) -> Vec<Step> {
    let weaker = |step| match step {
        Step::StoreLast(place, value) => Some(Step::Store(place, value)),
        Step::LoadFirst(place) => Some(Step::Load(place)),
        _ => None,
    };
    steps.into_iter().filter_map(|step| if rule(&step) { weaker(step) } else { Some(step) }).collect()
}

/// What has been done so far, as a bit for each step of a thread; what is in memory; and what the agent has loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    done: [u32; 2],
    memory: [u8; 4],
    loaded: [u8; 4],
}

/// Returns how many ends there are at which the agent takes a copy for whole, and how many of these copies are torn.
fn copies(model: Model, threads: [&[Step]; 2]) -> (usize, usize) {
    let mut todo = vec![State { done: [0; 2], memory: [0; 4], loaded: [0; 4] }];
    let mut seen: HashSet<State> = todo.iter().copied().collect();
    let (mut taken, mut torn) = (0, 0);
    while let Some(state) = todo.pop() {
        for (thread, steps) in threads.into_iter().enumerate() {
            let is_done = |at: usize| state.done[thread] >> at & 1 != 0;
            for (at, step) in steps.iter().enumerate() {
                let is_free = (0..at).all(|before| is_done(before) || !model.keeps(steps[before], *step));
                if is_done(at) || !is_free {
                    continue;
                }
                let mut next = state;
                next.done[thread] |= 1 << at;
                match *step {
                    Step::Store(place, value) | Step::StoreLast(place, value) => next.memory[place] = value,
                    Step::Load(place) | Step::LoadFirst(place) => next.loaded[place] = state.memory[place],
                    Step::Barrier | Step::LoadBarrier => {}
                }
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        let has_read = state.done[1].count_ones() as usize == threads[1].len();
        if has_read && state.loaded[BEGUN] == state.loaded[FINISHED] {
            taken += 1;
            torn += usize::from(DATA.iter().any(|place| state.loaded[*place] != state.loaded[FINISHED]));
        }
    }
    (taken, torn)
}

#[test]
fn no_order_tears_a_copy_that_is_taken_for_whole() {
    // On x86-64 the program has no barrier, and only the compiler is told what comes last.
    let plain = without(|step| !matches!(step, Step::Store(..)), program());
    for (model, program) in [(Model::Arm, program()), (Model::X86, plain)] {
        let (taken, torn) = copies(model, [&program, &agent()]);
        assert!(taken > 0 && torn == 0, "{model:?}: {torn} of {taken}");
    }
}

#[test]
fn without_any_of_the_rules_some_order_does() {
    for (what, program, agent) in [
        ("the program's barrier", without(|step| *step == Step::Barrier, program()), agent()),
        ("the program's last store", without(|step| matches!(step, Step::StoreLast(..)), program()), agent()),
        ("the agent's first load", program(), without(|step| matches!(step, Step::LoadFirst(_)), agent())),
        ("the agent's barrier", program(), without(|step| *step == Step::LoadBarrier, agent())),
    ] {
        let (taken, torn) = copies(Model::Arm, [&program, &agent]);
        assert!(torn > 0, "{what} is not needed: {taken} copies");
    }
}
