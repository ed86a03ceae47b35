//! The probe plan: everything to attach to one executable, and how each part was found.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::Variable;
use evictscope_machine::flow::{Operand, Recipe};
use evictscope_machine::sites::{Site, Way};
use evictscope_model::{FileAddress, Member};
use serde::{Serialize, Serializer};

use crate::item::{Description, FunctionKind, Item, Method, Reason, variable_name};
use crate::members::MemberPlan;
use crate::names::Identity;

/// Everything to attach to one executable. Its JSON form is what `inspect --json` prints.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbePlan {
    /// Which server it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// The traced functions that were found.
    pub functions: Vec<TracedFunction>,
    /// What is read from the server's memory, in a fixed order; only what was found.
    pub members: Vec<MemberPlan>,
    /// What was not found, and why.
    pub not_found: Vec<NotFound>,
}

impl ProbePlan {
    /// Returns the traced function with this description, if it was found.
    pub fn function(&self, description: &Description) -> Option<&TracedFunction> {
        let mut functions = self.functions.iter();
        functions.find(|function| function.kind.description == description)
    }

    /// Returns every site of every traced function.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.functions.iter().flat_map(|function| {
            let inner = function.inner_sites().map(|inner| &inner.site);
            let exits = function.exits.iter().map(|exit| &exit.site);
            function.entry.iter().chain(inner).chain(exits)
        })
    }

    /// Returns a member of `server`, or a global beside it, if it was found.
    pub fn member(&self, member: Member) -> Option<&MemberPlan> {
        self.members.iter().find(|plan| plan.member == member)
    }

    /// Returns the plan of an executable about which nothing can be learnt.
    pub(crate) fn nothing(identity: Identity, reason: Reason) -> Self {
        let item = Item::Plan;
        Self { identity, functions: Vec::new(), members: Vec::new(), not_found: vec![NotFound { item, reason }] }
    }

    /// Returns why nothing at all can be learnt from a process with this plan, if that is so.
    pub fn unusable_reason(&self) -> Option<&Reason> {
        let is_probed = |function: &TracedFunction| function.timed_span().is_some();
        let sees_any = !self.members.is_empty() || self.functions.iter().any(is_probed);
        let first = self.not_found.first().filter(|_| !sees_any)?;
        Some(&first.reason)
    }

    /// Returns this plan with one of its functions listed as not found, because of `why`.
    pub fn without(&self, function: &FunctionKind, why: String) -> Self {
        let mut plan = self.clone();
        plan.functions.retain(|one| one.kind != *function);
        plan.not_found.push(NotFound { item: Item::Function(*function), reason: Reason::Told(why) });
        plan
    }

    /// Returns whether the server's counter of commands can be read.
    pub fn counts_commands(&self) -> bool {
        self.member(Member::StatNumcommands).is_some()
    }
}

/// A traced function: where its probes go.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TracedFunction {
    /// Which traced function it is.
    pub kind: FunctionKind,
    /// Its name in Redis's source.
    #[borsh(deserialize_with = "crate::sent::function_name")]
    pub name: &'static str,
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Passed by every call; the entry probe and the return probe are here.
    pub entry: Option<Site>,
    /// Passed once by each call that goes past the early returns.
    pub inner: Option<InnerSite>,
    /// Where the expire cycle's job for fields of hashes begins, if that is a separate function; the inner site is then
    /// in the job for keys, and the exits are those of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields_inner: Option<InnerSite>,
    /// Each call that passed the inner site (or each call, if the function has none) ends at exactly one
    /// of these. No other call reaches any of them.
    pub exits: Vec<Exit>,
}

impl TracedFunction {
    /// Returns the inner sites. Each inner call passes one of them.
    pub fn inner_sites(&self) -> impl Iterator<Item = &InnerSite> {
        self.inner.iter().chain(&self.fields_inner)
    }

    /// Returns where the timing of a call begins: at the inner sites, or at the entry of a function without one.
    pub fn begins(&self) -> impl Iterator<Item = &Site> {
        let has_inner = self.kind.description.inner.is_some();
        let entry = self.entry.as_ref().filter(|_| !has_inner);
        let inner = self.inner_sites().map(|inner| &inner.site);
        entry.into_iter().chain(inner)
    }

    /// Returns the first of [`begins`](Self::begins).
    pub fn begin(&self) -> Option<&Site> {
        self.begins().next()
    }

    /// Returns the two ends between which calls are timed when not every call is probed. Neither is of use without the
    /// other.
    pub fn timed_span(&self) -> Option<(&Site, &[Exit])> {
        (!self.exits.is_empty()).then_some((self.begin()?, &self.exits))
    }

    /// Returns whether inner calls can be timed: to the exits, or, while every call is probed, to the return.
    pub fn times_inner_calls(&self) -> bool {
        self.inner.is_some() && (!self.exits.is_empty() || self.entry.is_some())
    }

    /// Returns the entry, if every call can be probed: the return probe ends them. If a function has inner
    /// calls, its other calls are counted only if the two can be told apart.
    pub fn every_call(&self) -> Option<&Site> {
        let is_told = self.kind.description.inner.is_none() || self.inner.is_some();
        self.entry.as_ref().filter(|_| is_told)
    }

    /// Returns how one quantity is computed at the inner site, if that is known.
    pub fn quantity(&self, quantity: Variable) -> Option<&QuantityPlan> {
        let mut quantities = self.inner.as_ref()?.quantities.iter();
        quantities.find(|plan| plan.quantity == quantity)
    }

    /// Returns whether it is known at each exit how many keys a cycle sampled, and how many of them had expired.
    pub fn counts_keys(&self) -> bool {
        let is_known = |exit: &Exit| exit.sampled.is_some() && exit.expired.is_some();
        !self.exits.is_empty() && self.exits.iter().all(is_known)
    }

    /// Returns whether all its quantities are known.
    pub fn has_all_quantities(&self) -> bool {
        let mut wanted = self.kind.description.quantities.iter();
        wanted.all(|quantity| self.quantity(*quantity).is_some())
    }
}

/// The site inside a function where its quantities are read.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InnerSite {
    /// Where.
    #[serde(flatten)]
    pub site: Site,
    /// What can be read there, in the order of the description; only what was found.
    pub quantities: Vec<QuantityPlan>,
    /// Where the type of an expire cycle is: the `int` that it was called with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_type: Option<Operand>,
    /// Where the `int` is that tells the job of an expire cycle: 0 for keys, 1 for fields of hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Operand>,
}

/// How a quantity is computed at the inner site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuantityPlan {
    /// Which quantity.
    #[serde(rename = "name", serialize_with = "name_of")]
    #[borsh(serialize_with = "crate::sent::write_variable", deserialize_with = "crate::sent::variable")]
    pub quantity: Variable,
    /// The sum that computes it.
    pub recipe: Recipe,
    /// How the recipe was found.
    pub method: Method,
}

fn name_of<S: Serializer>(quantity: &Variable, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(variable_name(*quantity))
}

/// A site on the way out.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// Where.
    #[serde(flatten)]
    pub site: Site,
    /// The way of a conditional jump, if only the calls that take it end here. At the inner site, the inner probe ends
    /// them.
    pub way: Option<Way>,
    /// Where the call's result is, if that is known.
    pub result: Option<Operand>,
    /// Where the number of keys that an expire cycle sampled is: `total_sampled` in expire.c.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Operand>,
    /// Where the number of sampled keys that had expired is: `total_expired` in expire.c.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired: Option<Operand>,
}

/// Something that was not found.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotFound {
    /// What.
    pub item: Item,
    /// Why.
    #[serde(rename = "why")]
    pub reason: Reason,
}
