//! Numbers that say whether conditions hold, and what follows from a branch on them.
//!
//! Compilers turn `a || b` into two bytes that are set and combined, and return such a number from what they inline,
//! merged with the constants of other paths. A branch on it is one on the conditions.

use evictscope_model::FileAddress;

use super::atoms::{Atom, Atoms, Truth};
use super::condition::{Condition, Relation, decide};
use super::value::{AtomId, Value};

/// The most conditions that one number can be made of.
const MAX_CONDITIONS: usize = 8;

impl Truth {
    fn negated(&self) -> Self {
        Self {
            all: !self.all && self.conditions.len() > 1,
            conditions: self.conditions.iter().map(Condition::negated).collect(),
        }
    }

    /// Returns whether it is one condition, or several that are combined in this way.
    fn can_be(&self, all: bool) -> bool {
        self.all == all || self.conditions.len() == 1
    }

    /// Returns what holds if this does; `None` if it cannot.
    fn consequences(&self, facts: &[Condition]) -> Option<Vec<Condition>> {
        let is_possible = |condition: &&Condition| decide(facts, condition) != Some(false);
        let possible: Vec<Condition> = (self.conditions.iter().filter(is_possible)).cloned().collect();
        let lost = possible.len() < self.conditions.len();
        match possible.len() {
            0 => None,
            _ if self.all && lost => None,
            1 => Some(possible),
            _ if self.all => Some(possible),
            _ => Some(Vec::new()),
        }
    }
}

impl Atoms {
    /// Returns 1 if the condition holds, else 0.
    pub fn truth(&mut self, condition: Condition) -> Value {
        self.truth_of(Truth { all: false, conditions: vec![condition] })
    }

    /// Returns 1 if it holds, else 0.
    pub fn truth_of(&mut self, mut truth: Truth) -> Value {
        let decisive = Some(!truth.all);
        if truth.conditions.iter().any(|condition| condition.evaluate() == decisive) {
            return Value::constant(u64::from(!truth.all));
        }
        truth.conditions.retain(|condition| condition.evaluate().is_none());
        match truth.conditions.as_slice() {
            [] => return Value::constant(u64::from(truth.all)),
            [only] => {
                if let Some(same) = self.as_truth_tested(only) {
                    return self.value(Atom::Truth(same));
                }
                truth.all = false;
            }
            _ => {}
        }
        self.value(Atom::Truth(truth))
    }

    /// Returns what `value` says, if it is 1 when that holds, and else 0.
    pub fn as_truth(&self, value: &Value) -> Option<&Truth> {
        if let Atom::Truth(truth) = self.get(value.as_atom()?)? { Some(truth) } else { None }
    }

    /// Returns what a comparison of such a number with 0 or 1 stands for.
    fn as_truth_tested(&self, condition: &Condition) -> Option<Truth> {
        let truth = self.as_truth(&condition.left)?;
        match (condition.relation, condition.right.as_constant()) {
            (Relation::NotEqual, Some(0)) | (Relation::Equal, Some(1)) => Some(truth.clone()),
            (Relation::Equal, Some(0)) | (Relation::NotEqual, Some(1)) => Some(truth.negated()),
            _ => None,
        }
    }

    /// Returns `left & right` (`all`) or `left | right`, if both say whether conditions hold.
    pub fn combined(&mut self, all: bool, left: &Value, right: &Value) -> Option<Value> {
        let (left, right) = (self.as_truth(left)?, self.as_truth(right)?);
        let mut conditions = left.conditions.clone();
        let more = right.conditions.iter();
        conditions.extend(more.filter(|condition| !left.conditions.contains(condition)).cloned());
        let fits = left.can_be(all) && right.can_be(all) && conditions.len() <= MAX_CONDITIONS;
        fits.then(|| self.truth_of(Truth { all, conditions }))
    }

    /// Returns the condition that both of two hold (`all`), or one of them.
    pub fn joined(&mut self, all: bool, conditions: [Condition; 2]) -> Condition {
        let [left, right] = conditions.clone().map(|condition| self.truth(condition));
        let combined = self.combined(all, &left, &right);
        let left = combined.unwrap_or_else(|| self.truth_of(Truth { all, conditions: conditions.into() }));
        Condition { relation: Relation::NotEqual, left, right: Value::constant(0), bits: 64 }
    }

    /// Returns the inverse of `value`, if it says whether conditions hold.
    pub fn inverted(&mut self, value: &Value) -> Option<Value> {
        let negated = self.as_truth(value)?.negated();
        Some(self.truth_of(negated))
    }

    /// Returns what holds if `condition` and `facts` do, including `condition`; `None` if they cannot.
    pub fn consequences(&mut self, facts: &[Condition], condition: Condition) -> Option<Vec<Condition>> {
        if decide(facts, &condition) == Some(false) {
            return None;
        }
        if !self.budget.enter() {
            return Some(vec![condition]);
        }
        let found = self.consequences_inside(facts, condition);
        self.budget.leave();
        found
    }

    fn consequences_inside(&mut self, facts: &[Condition], condition: Condition) -> Option<Vec<Condition>> {
        let choice = self.choice_in(&condition.left).or_else(|| self.choice_in(&condition.right));
        let Some(choice) = choice else { return Some(vec![condition]) };
        let mut possible: Vec<Vec<Condition>> = Vec::new();
        for (option, needed) in self.options_of(choice) {
            let decided = self.substitute_condition(&condition, choice, &option);
            let needed = if let Some(truth) = needed { truth.consequences(facts) } else { Some(Vec::new()) };
            let is_possible = decide(facts, &decided) != Some(false);
            let Some(mut implied) = needed.filter(|_| is_possible) else { continue };
            if decided.evaluate().is_none() {
                implied.push(decided);
            }
            possible.push(implied);
        }
        let mut options = possible.into_iter();
        let only = options.next()?;
        let mut implied = vec![condition];
        if options.next().is_none() {
            for condition in only {
                implied.extend(self.consequences(facts, condition)?);
            }
        }
        Some(implied)
    }

    /// Returns the first choice that a value depends on.
    fn choice_in(&self, value: &Value) -> Option<AtomId> {
        value.atoms().find_map(|id| match self.get(id)? {
            Atom::Truth(_) | Atom::Select { .. } | Atom::Merged { .. } => Some(id),
            Atom::ZeroExtended { of, .. } | Atom::SignExtended { of, .. } => self.choice_in(of),
            Atom::LowByte { byte, .. } => self.choice_in(byte),
            _ => None,
        })
    }

    /// Returns what a choice can be, and what must hold for it.
    fn options_of(&self, choice: AtomId) -> Vec<(Value, Option<Truth>)> {
        match self.get(choice) {
            Some(Atom::Truth(truth)) => {
                vec![(Value::constant(1), Some(truth.clone())), (Value::constant(0), Some(truth.negated()))]
            }
            Some(Atom::Select { condition, then, otherwise }) => {
                let truth = Truth { all: false, conditions: vec![condition.clone()] };
                let negated = truth.negated();
                vec![(then.clone(), Some(truth)), (otherwise.clone(), Some(negated))]
            }
            Some(Atom::Merged { options, .. }) => options.iter().map(|option| (option.clone(), None)).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns whether a value depends on the path by which control came to the block at `address`.
    pub fn depends_on_way(&self, value: &Value, address: FileAddress) -> bool {
        value.atoms().any(|id| match self.get(id) {
            Some(Atom::Merged { address: block, .. }) => *block == address,
            Some(Atom::ZeroExtended { of, .. } | Atom::SignExtended { of, .. }) => self.depends_on_way(of, address),
            Some(Atom::LowByte { byte, .. }) => self.depends_on_way(byte, address),
            _ => false,
        })
    }
}
