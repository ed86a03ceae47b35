//! The probe plan: everything to attach to one executable, and how each part was found.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::{VARIABLES, Variable};
use evictscope_machine::flow::{Operand, Recipe};
use evictscope_machine::sites::{Site, Way};
use evictscope_model::{FileAddress, Member};
use serde::{Serialize, Serializer};

use crate::commands::CommandsPlan;
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
    /// Where it counts its commands, if that was found.
    pub commands: Option<CommandsPlan>,
    /// What was not found, and why.
    pub not_found: Vec<NotFound>,
}

impl ProbePlan {
    /// Returns the traced function with this description, if it was found.
    pub fn function(&self, description: &Description) -> Option<&TracedFunction> {
        self.functions.iter().find(|function| function.kind.description == description)
    }

    /// Returns every site of every traced function.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.functions.iter().flat_map(|function| {
            let CallSpan { entry, inner, exits } = &function.span;
            entry.iter().chain(inner).chain(exits.iter().map(|exit| &exit.site))
        })
    }

    /// Returns a member of `server`, or a global beside it, if it was found.
    pub fn member(&self, member: Member) -> Option<&MemberPlan> {
        self.members.iter().find(|plan| plan.member == member)
    }

    /// Returns the plan of an executable about which nothing can be learnt.
    pub(crate) fn nothing(identity: Identity, reason: Reason) -> Self {
        let item = Item::Plan;
        let not_found = vec![NotFound { item, reason }];
        Self { identity, functions: Vec::new(), members: Vec::new(), commands: None, not_found }
    }

    /// Returns why nothing at all can be learnt from a process with this plan, if that is so.
    pub fn unusable_reason(&self) -> Option<&Reason> {
        let is_probed = |function: &TracedFunction| function.timed_span().is_some();
        let sees_any = !self.members.is_empty() || self.functions.iter().any(is_probed);
        Some(&self.not_found.first().filter(|_| !sees_any)?.reason)
    }

    /// Returns this plan with one of its functions listed as not found, because of `why`.
    pub fn without(&self, function: &FunctionKind, why: String) -> Self {
        let mut plan = self.clone();
        plan.functions.retain(|planned| planned.kind != *function);
        plan.not_found.push(NotFound { item: Item::Function(*function), reason: Reason::Sentence(why) });
        plan
    }
}

/// A traced function: where its probes go, and what they read there.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct TracedFunction {
    /// Which traced function it is.
    pub kind: FunctionKind,
    /// Its name in Redis's source.
    #[borsh(deserialize_with = "crate::sent::function_name")]
    pub name: &'static str,
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Where its calls begin and end.
    pub span: CallSpan,
    /// What is read there.
    pub plan: FunctionPlan,
}

/// Where the calls of a traced function begin and end.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct CallSpan {
    /// Passed by every call; the entry probe and the return probe are here.
    pub entry: Option<Site>,
    /// Each call that goes past the early returns passes one of these, once. There are two only if an expire cycle does
    /// its jobs for keys and for fields of hashes, in this order, in two functions; the exits are then those of both.
    pub inner: Vec<Site>,
    /// Each call that passed an inner site (or each call, if the function has none) ends at exactly one
    /// of these. No other call reaches any of them.
    pub exits: Vec<Exit>,
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
}

/// What is read in a traced function besides when its calls begin and end, and their results.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub enum FunctionPlan {
    /// Nothing.
    Calls,
    /// The goal variables of an eviction call, at the inner site, in the order of [`VARIABLES`]; only what was found.
    Eviction(Vec<QuantityPlan>),
    /// The type and the keys of an expire cycle.
    Expire(ExpirePlan),
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

/// What is read in an expire cycle.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpirePlan {
    /// At each inner site.
    pub starts: Vec<CycleStartPlan>,
    /// At each exit.
    pub ends: Vec<CycleEndPlan>,
}

/// What tells the kind of an expire cycle where it begins.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CycleStartPlan {
    /// Where its type is: the `int` that it was called with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_type: Option<Operand>,
    /// Where the `int` is that tells its job: 0 for keys, 1 for fields of hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Operand>,
    /// The server's count of keys that have expired, if no end has that of the cycle: it is what that one grows by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired: Option<Operand>,
}

/// Where the keys of an expire cycle are counted where it ends.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CycleEndPlan {
    /// Where the number of sampled keys is: `total_sampled` in expire.c.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Operand>,
    /// Where the number of those that had expired is: `total_expired` in expire.c, or what the start has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired: Option<Operand>,
}

impl TracedFunction {
    /// Returns whether it is known where the calls that go past the early returns do so.
    pub fn has_inner_site(&self) -> bool {
        !self.span.inner.is_empty()
    }

    /// Returns where the timing of a call begins: at the inner sites, or at the entry of a function without one.
    pub fn begins(&self) -> impl Iterator<Item = &Site> {
        let has_inner = self.kind.description.inner.is_some();
        self.span.entry.iter().filter(move |_| !has_inner).chain(&self.span.inner)
    }

    /// Returns the first of [`begins`](Self::begins).
    pub fn begin(&self) -> Option<&Site> {
        self.begins().next()
    }

    /// Returns the two ends between which calls are timed when not every call is probed. Neither is of use without the
    /// other.
    pub fn timed_span(&self) -> Option<(&Site, &[Exit])> {
        let exits = &self.span.exits;
        (!exits.is_empty()).then_some((self.begin()?, exits))
    }

    /// Returns whether inner calls can be timed: to the exits, or, while every call is probed, to the return.
    pub fn times_inner_calls(&self) -> bool {
        self.has_inner_site() && (!self.span.exits.is_empty() || self.span.entry.is_some())
    }

    /// Returns the entry, if every call can be probed: the return probe ends them. If a function has inner
    /// calls, its other calls are counted only if the two can be told apart.
    pub fn every_call(&self) -> Option<&Site> {
        let is_distinguished = self.kind.description.inner.is_none() || self.has_inner_site();
        self.span.entry.as_ref().filter(|_| is_distinguished)
    }

    /// Returns how one quantity is computed at the inner site, if that is known.
    pub fn quantity(&self, quantity: Variable) -> Option<&QuantityPlan> {
        match &self.plan {
            FunctionPlan::Eviction(plans) => plans.iter().find(|plan| plan.quantity == quantity),
            _ => None,
        }
    }

    /// Returns whether all quantities of an eviction call are known.
    pub fn has_all_quantities(&self) -> bool {
        VARIABLES.iter().all(|quantity| self.quantity(*quantity).is_some())
    }
}

impl FunctionPlan {
    /// Returns what is read in an expire cycle, if it is one.
    pub fn expire(&self) -> Option<&ExpirePlan> {
        if let Self::Expire(plan) = self { Some(plan) } else { None }
    }

    /// Returns whether it is known at each exit how many keys an expire cycle sampled, and how many of them had
    /// expired.
    pub fn counts_keys(&self) -> bool {
        let is_known = |end: &CycleEndPlan| end.sampled.is_some() && end.expired.is_some();
        self.expire().is_some_and(|plan| !plan.ends.is_empty() && plan.ends.iter().all(is_known))
    }
}

/// The JSON form of a traced function: what is read at a site is with the site.
#[derive(Serialize)]
struct FunctionForm<'a> {
    kind: FunctionKind,
    name: &'static str,
    address: FileAddress,
    entry: &'a Option<Site>,
    inner: Option<InnerForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields_inner: Option<InnerForm<'a>>,
    exits: Vec<ExitForm<'a>>,
}

#[derive(Serialize)]
struct InnerForm<'a> {
    #[serde(flatten)]
    site: &'a Site,
    quantities: &'a [QuantityPlan],
    #[serde(flatten)]
    start: Option<&'a CycleStartPlan>,
}

#[derive(Serialize)]
struct ExitForm<'a> {
    #[serde(flatten)]
    exit: &'a Exit,
    #[serde(flatten)]
    end: Option<&'a CycleEndPlan>,
}

impl Serialize for TracedFunction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { kind, name, address, span: CallSpan { entry, inner, exits }, plan } = self;
        let expire = plan.expire();
        let quantities = if let FunctionPlan::Eviction(quantities) = plan { &quantities[..] } else { &[] };
        let mut inner = inner.iter().enumerate().map(|(number, site)| {
            let start = expire.and_then(|plan| plan.starts.get(number));
            InnerForm { site, quantities, start }
        });
        let exits = exits.iter().enumerate().map(|(number, exit)| {
            let end = expire.and_then(|plan| plan.ends.get(number));
            ExitForm { exit, end }
        });
        FunctionForm {
            kind: *kind,
            name,
            address: *address,
            entry,
            inner: inner.next(),
            fields_inner: inner.next(),
            exits: exits.collect(),
        }
        .serialize(serializer)
    }
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
