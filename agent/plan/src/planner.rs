//! From an executable to its plan: each part of the analysis in turn, and what is missing by name.

use evictscope_abi::VARIABLES;
use iced_x86::{Formatter as _, GasFormatter, Instruction};

use crate::code::emulation;
use crate::code::graph::FunctionCode;
use crate::dwarf::{self, DebugInfo};
use crate::elf::error::ElfError;
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::flow::reach::Reach;
use crate::flow::value::Value;
use crate::members::{self, ConfigTable, KnownLayout, NoLayout, Server, ServerFacts};
use crate::names::{self, Identity, Texts};
use crate::plan::{
    Confidence, Counters, DoneSite, Function, MemberPlan, Method, ProbePlan, Recipe, Site, Sites,
    VariablePlan, variable_name,
};
use crate::traced::eviction::agreement::{self, Verdict};
use crate::traced::eviction::called;
use crate::traced::eviction::entry;
use crate::traced::eviction::exits::{self, Exit};
use crate::traced::eviction::inlined::{self, Candidate, GoalCopy};

/// Names of what `mem_reported` comes from.
const ALLOCATOR_FUNCTION: &str = "zmalloc_used_memory";

/// Plans the probes of the executable whose whole content is `data`, with the help of the debug
/// information in it, or else in the file whose whole content is `debug`: the one that belongs to
/// this very executable ([`DebugFileNames`](crate::DebugFileNames) tells).
///
/// What cannot be found is refused by name in the plan itself.
///
/// # Errors
///
/// Where `data` is not an x86-64 ELF executable.
pub fn plan(data: &[u8], debug: Option<&[u8]>) -> Result<ProbePlan, ElfError> {
    let mut image = Image::parse(data)?;
    if let Some(debug) = debug {
        image.add_symbols_of(debug)?;
    }
    let texts = names::find(&mut image, &[entry::TEXT]);
    let mut planner = Planner {
        image: &image,
        texts: &texts,
        debug: DebugInfo::default(),
        plan: empty(&image),
    };
    planner.run(data, debug);
    planner.drop_if_spent();
    Ok(planner.plan)
}

/// A plan that says nothing yet.
fn empty(image: &Image<'_>) -> ProbePlan {
    ProbePlan {
        build_id: image.build_id().map(str::to_owned),
        product: None,
        version: None,
        entry_point: image.entry(),
        functions: Vec::new(),
        sites: Sites::default(),
        variables: VARIABLES
            .iter()
            .map(|variable| VariablePlan {
                name: variable_name(*variable),
                recipe: None,
                method: Method::None,
                confidence: Confidence::None,
            })
            .collect(),
        members: Vec::new(),
        refusals: Vec::new(),
    }
}

struct Planner<'a, 'data> {
    image: &'a Image<'data>,
    texts: &'a Texts,
    debug: DebugInfo,
    plan: ProbePlan,
}

impl Planner<'_, '_> {
    fn run(&mut self, data: &[u8], debug: Option<&[u8]>) {
        let config = members::config_table(self.image);
        let policy = config
            .as_ref()
            .ok()
            .and_then(|config| config.get("maxmemory_policy"));
        let Some(code) = self.eviction_function(policy.copied(), data, debug) else {
            return;
        };
        self.plan.sites.entry = self.entry_site(&code);
        if self.plan.sites.entry.is_none() {
            self.refuse(
                "entry",
                "no instruction that every call executes before the stack pointer moves",
            );
        }
        let config = match config {
            Ok(config) => config,
            Err(why) => {
                self.refuse("maxmemory", &why);
                ConfigTable::new()
            }
        };
        let Some(maxmemory) = config.get("maxmemory").copied() else {
            self.refuse(
                "goal",
                "without the address of maxmemory the calculation cannot be recognised",
            );
            return;
        };
        let mut execution = Execution::run(&code);
        let (goal, counter) = self.goal(&mut execution, maxmemory);
        let counter = self.allocator_counter(counter);
        if let Some(goal) = &goal {
            self.goal_site(&mut execution, goal, maxmemory);
            self.done_sites(&mut execution, goal);
            self.compare_variables(&mut execution, goal);
        }
        self.members(&mut execution, &config, counter);
        agreement::of_members(&mut self.plan, &self.debug);
    }

    /// Where the budget ran out, what was found by then may be wrong, so nothing of it stays.
    fn drop_if_spent(&mut self) {
        if self.image.budget.is_spent() {
            self.plan = empty(self.image);
            self.refuse(
                "plan",
                "it would take longer, or more memory, than for any server: made to do harm, or no server",
            );
        }
    }

    /// Reads what DWARF says, in the executable or else in its debug file.
    fn read_debug_info(&mut self, data: &[u8], debug: Option<&[u8]>, address: u64) {
        for data in std::iter::once(data).chain(debug) {
            let eviction = dwarf::Asked {
                names: &entry::NAMES,
                entry: Some(address),
            };
            match dwarf::read(data, eviction) {
                Ok(Some(info)) => {
                    self.debug = info;
                    return;
                }
                Ok(None) => {}
                Err(why) => self.refuse("dwarf", &why.to_string()),
            }
        }
    }

    /// The eviction function; where DWARF has it too, both must agree.
    fn eviction_function(
        &mut self,
        policy: Option<u64>,
        data: &[u8],
        debug: Option<&[u8]>,
    ) -> Option<FunctionCode> {
        let function = entry::eviction_call(self.image, self.texts, policy)
            .map_err(|why| self.refuse("eviction_call", &why))
            .ok()?;
        let address = function.address;
        self.read_debug_info(data, debug, address);
        if let Some(other) = self.debug.eviction_function
            && other.address != address
        {
            self.refuse(
                "eviction_call",
                &format!(
                    "{} is at {address:#x}, but DWARF has {} at {:#x}: debug information of another build",
                    function.name, other.name, other.address
                ),
            );
            return None;
        }
        self.plan.functions.push(function);
        FunctionCode::decode(self.image, address)
            .map_err(|error| self.refuse("eviction_call", &error.to_string()))
            .ok()
    }

    /// The first instruction that the kernel emulates, of those that every call executes before the
    /// stack pointer moves; else the first of all.
    fn entry_site(&self, code: &FunctionCode) -> Option<Site> {
        let block = code.blocks.first()?;
        let first = block.instructions.first()?;
        let moves_stack = |instruction: &Instruction| instruction.stack_pointer_increment() != 0;
        let mut site = first;
        for instruction in &block.instructions {
            if emulation::is_emulated(instruction) && instruction.is_stack_instruction() {
                site = instruction;
                break;
            }
            if moves_stack(instruction) {
                break;
            }
        }
        self.site(site)
    }

    /// The calculation of the goal, inlined or called, and the allocator's counter behind it.
    fn goal(
        &mut self,
        execution: &mut Execution<'_>,
        maxmemory: u64,
    ) -> (Option<GoalCopy>, Option<Result<Counters, String>>) {
        // A called copy comes first where there is one: what is inlined behind it in the same
        // function only looks whether enough was freed.
        if let Some(called) = called::find(self.image, execution, maxmemory) {
            return (Some(called.goal), Some(called.counter));
        }
        match inlined::find(execution, maxmemory) {
            Ok(goal) => {
                let counter = members::counters_behind(self.image, &goal.mem_reported, execution);
                (Some(goal), Some(counter))
            }
            Err(why) => {
                self.refuse("goal", &why.to_string());
                (None, None)
            }
        }
    }

    /// The allocator's counter, by the name of the function that returns it and by what the eviction
    /// function uses (`used`); where both answer they must agree.
    fn allocator_counter(&mut self, used: Option<Result<Counters, String>>) -> Option<Counters> {
        let named = self.image.function(ALLOCATOR_FUNCTION).map(|symbol| {
            self.plan.functions.push(Function {
                name: ALLOCATOR_FUNCTION.to_owned(),
                address: symbol.address,
            });
            members::counters_returned_by(self.image, symbol.address)
        });
        let why = match (named, used) {
            (Some(Ok(named)), Some(Ok(used))) if named != used => format!(
                "zmalloc_used_memory() returns the counter at {:#x}, but the eviction function uses {:#x}",
                named.first, used.first
            ),
            (_, Some(Ok(counter))) | (Some(Ok(counter)), _) => return Some(counter),
            (Some(Err(why)), _) | (None, Some(Err(why))) => why,
            (None, None) => "no function called zmalloc_used_memory, and without the goal nothing else leads to its counter"
                .to_owned(),
        };
        self.refuse("used_memory", &why);
        None
    }

    fn goal_site(&mut self, execution: &mut Execution<'_>, goal: &GoalCopy, maxmemory: u64) {
        let values = [
            &goal.mem_reported,
            &goal.overhead,
            &goal.mem_used,
            &goal.mem_tofree,
            &goal.maxmemory,
        ];
        let best = inlined::candidates(execution, goal)
            .into_iter()
            .map(|candidate| {
                let recipes = recipes_at(execution, &candidate.state, &values, goal, maxmemory);
                (candidate, recipes)
            })
            .min_by_key(|(candidate, recipes)| {
                let missing = recipes.iter().filter(|recipe| recipe.is_none()).count();
                let cost = emulation::cost(&candidate.instruction);
                (missing, cost, !candidate.exclusive)
            });
        let Some((Candidate { instruction, .. }, recipes)) = best else {
            self.refuse("goal", "no instruction after the deciding branch");
            return;
        };
        self.plan.sites.goal = self.site(&instruction);
        for (name, recipe) in VARIABLES.map(variable_name).into_iter().zip(recipes) {
            if recipe.is_none() {
                self.refuse(
                    name,
                    "at the goal site no register or stack slot holds what it is made of",
                );
            }
            for variable in self
                .plan
                .variables
                .iter_mut()
                .filter(|variable| variable.name == name)
            {
                if recipe.is_some() {
                    variable.method = Method::Dataflow;
                    variable.confidence = Confidence::Certain;
                }
                variable.recipe.clone_from(&recipe);
            }
        }
    }

    /// Compares what the data flow found with what DWARF says, and refuses what differs.
    fn compare_variables(&mut self, execution: &mut Execution<'_>, goal: &GoalCopy) {
        for (index, variable) in VARIABLES.into_iter().enumerate() {
            let Some(plan) = self.plan.variables.get_mut(index) else {
                continue;
            };
            if plan.recipe.is_none() {
                continue;
            }
            match agreement::of_variable(execution, goal, variable, &self.debug) {
                Verdict::Same => plan.method = Method::Both,
                Verdict::Silent => {}
                Verdict::Different(why) => {
                    plan.withdraw();
                    self.refuse(variable_name(variable), &why);
                }
            }
        }
    }

    fn done_sites(&mut self, execution: &mut Execution<'_>, goal: &GoalCopy) {
        match exits::find(
            execution,
            goal.deciding_block,
            goal.over_edge,
            goal.over_block,
        ) {
            Ok(exits) => {
                self.plan.sites.done = exits
                    .iter()
                    .filter_map(|exit| self.done_site(exit))
                    .collect();
                if exits.iter().any(|exit| exit.result.is_none()) {
                    self.refuse(
                        "result",
                        "at a done site no register is known to hold the result",
                    );
                }
            }
            Err(why) => self.refuse("done", &why.to_string()),
        }
    }

    fn done_site(&self, exit: &Exit) -> Option<DoneSite> {
        Some(DoneSite {
            site: self.site(&exit.instruction)?,
            result: exit.result.clone(),
        })
    }

    fn members(
        &mut self,
        execution: &mut Execution<'_>,
        config: &ConfigTable,
        counters: Option<Counters>,
    ) {
        if let Some(counters) = counters {
            self.push_member("used_memory", counters.first, None, Method::Dataflow);
            if let Some(member) = self.plan.members.last_mut() {
                member.counters = Some(counters).filter(|counters| counters.most > 1);
            }
        }
        let identity = names::identity(self.image, self.texts);
        self.plan.product = identity.product.map(str::to_owned);
        self.plan.version.clone_from(&identity.version);
        let server = match self.image.object("server") {
            Some(symbol) => Ok(Server {
                address: symbol.address,
                size: symbol.size,
                is_exact: true,
            }),
            None => members::server(self.image, config, &identity, &mut |range| {
                members::incremented_member(execution, range)
            }),
        };
        let server = match server {
            Ok(server) => server,
            Err(why) => {
                for (member, address) in config {
                    self.push_member(member, *address, None, Method::ConfigTable);
                }
                return self.refuse_counters(&why);
            }
        };
        let range = server.address..server.address.saturating_add(server.size);
        for (member, address) in config {
            let offset = address
                .checked_sub(server.address)
                .filter(|_| server.is_exact && range.contains(address));
            self.push_member(member, *address, offset, Method::ConfigTable);
        }
        let flow = match members::by_data_flow(self.image, execution, range) {
            Ok(flow) => flow,
            Err(why) => return self.refuse_counters(&why),
        };
        let facts = ServerFacts {
            address: server.address,
            size: server.size,
            config,
            flow: &flow,
        };
        let known = match members::known_layout(&facts) {
            Ok(known) => Ok(known),
            Err(NoLayout::NotOne(why)) => Err(why),
            Err(NoLayout::Contradicted(why)) => return self.refuse_counters(&why),
        };
        for (index, member) in members::COUNTERS.into_iter().enumerate() {
            let (offset, method) = match (flow.get(member), &known) {
                (Some(address), _) => (address.wrapping_sub(server.address), Method::Dataflow),
                (None, Ok(known)) => (known.layout.counters()[index], Method::KnownLayout),
                (None, Err(why)) => {
                    self.refuse(member, why);
                    continue;
                }
            };
            let address = server.address.wrapping_add(offset);
            let offset = server.is_exact.then_some(offset);
            self.push_member(member, address, offset, method);
        }
        if let Ok(known) = known {
            self.check_version(&known, &identity);
        }
    }

    fn refuse_counters(&mut self, why: &str) {
        for member in members::COUNTERS {
            self.refuse(member, why);
        }
    }

    /// What the executable says of itself must fit its layout.
    fn check_version(&mut self, known: &KnownLayout, identity: &Identity) {
        match (identity.product, &identity.version) {
            (Some(product), Some(version)) if !known.fits(product, version) => {
                self.plan.product = None;
                self.plan.version = None;
                let why = format!(
                    "the executable says that it is {product} {version}, but its struct redisServer is that of {}",
                    known.releases.join(", ")
                );
                self.refuse("version", &why);
            }
            (Some(product), None) => {
                self.plan.version = known.series(product).map(str::to_owned);
            }
            _ => {}
        }
    }

    fn push_member(
        &mut self,
        name: &'static str,
        address: u64,
        offset: Option<u64>,
        method: Method,
    ) {
        self.plan.members.push(MemberPlan {
            name,
            address,
            offset,
            method,
            counters: None,
        });
    }

    fn refuse(&mut self, what: &str, why: &str) {
        self.plan.refuse(what, why);
    }

    fn site(&self, instruction: &Instruction) -> Option<Site> {
        let mut text = String::new();
        let mut formatter = GasFormatter::new();
        // As objdump writes numbers.
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_branch_leading_zeros(false);
        options.set_displacement_leading_zeros(false);
        formatter.format(instruction, &mut text);
        Some(Site {
            address: instruction.ip(),
            file_offset: self.image.file_offset(instruction.ip())?,
            instruction: text,
            emulated: emulation::is_emulated(instruction),
        })
    }
}

fn recipes_at(
    execution: &mut Execution<'_>,
    state: &crate::flow::state::State,
    values: &[&Value; 5],
    goal: &GoalCopy,
    maxmemory: u64,
) -> Vec<Option<Recipe>> {
    let mut reach = Reach::of(execution, state, values);
    reach.add_global(maxmemory, "server.maxmemory", &goal.maxmemory);
    values.iter().map(|value| reach.recipe(value)).collect()
}
