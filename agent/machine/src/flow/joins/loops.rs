//! The order in which the blocks of a function are executed, the loops that this makes of them, what a loop changes,
//! and the state at its head, where that is forgotten.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use evictscope_model::FileAddress;
use petgraph::visit::DfsPostOrder;

use crate::code::graph::{Block, BlockId, FunctionCode, PerBlock};
use crate::flow::state::State;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::flags::Flags;
use crate::flow::values::value::Value;
use crate::ir::{AccessKind, Address, Effect, Expression, Instruction, RegisterSet, bit};
use crate::isa::{Convention, numbers};

/// The order of a function's blocks.
pub struct Order {
    /// The blocks that can be reached, in reverse post-order.
    pub blocks: Vec<BlockId>,
    /// Where each block is in `blocks`; `usize::MAX` if it is not.
    position: PerBlock<usize>,
}

/// What is known about a loop before it is executed.
pub struct Loop {
    /// What it changes.
    pub changes: Rc<Changes>,
    /// If it is also entered past its head: the blocks of all loops that can be reached from each other there, which
    /// count as one.
    pub component: Option<BTreeSet<BlockId>>,
}

impl Order {
    /// Orders the blocks of a function.
    pub fn of(code: &FunctionCode) -> Self {
        let graph = code.graph();
        let mut blocks = Vec::new();
        if let Some(entry) = graph.node_indices().next() {
            let mut walk = DfsPostOrder::new(&graph, entry);
            while let Some(node) = walk.next(&graph) {
                blocks.push(BlockId::of(node));
            }
        }
        blocks.reverse();
        let mut position = code.blocks.filled(usize::MAX);
        for (index, block) in blocks.iter().enumerate() {
            position[*block] = index;
        }
        Self { blocks, position }
    }

    /// Returns whether a block has been executed when `last` has.
    pub fn is_executed(&self, block: BlockId, last: BlockId) -> bool {
        self.position[block] <= self.position[last]
    }

    /// Returns whether control goes back to the block `to` from `from`, as from the end of a loop.
    pub fn is_back(&self, from: BlockId, to: BlockId) -> bool {
        let at = self.position[from];
        at >= self.position[to] && at != usize::MAX
    }

    /// Returns whether control goes back to `block`, whose id is `id`, from one that follows it.
    pub fn is_loop_head(&self, block: &Block, id: BlockId) -> bool {
        block.predecessors.iter().any(|from| self.is_back(*from, id))
    }

    /// Finds the loops by their heads. A loop is all blocks from which control comes back to its head without passing
    /// it.
    pub fn loops(&self, code: &FunctionCode) -> HashMap<BlockId, Loop> {
        let components = code.loops();
        let convention = code.architecture.convention();
        let mut loops = HashMap::new();
        for head in self.blocks.iter().copied() {
            let mut ends = code.blocks[head].predecessors.clone();
            ends.retain(|from| self.is_back(*from, head));
            if ends.is_empty() {
                continue;
            }
            let mut blocks = code.leading_to(ends, &[head]);
            blocks.insert(head);
            let mut component = None;
            if head != BlockId::ENTRY && blocks.contains(&BlockId::ENTRY) {
                let all = components.iter().find(|component| component.contains(&head));
                blocks = all.into_iter().flatten().copied().collect();
                component = Some(blocks.clone());
            }
            let mut changes = Changes::default();
            for block in blocks {
                let instructions = &code.blocks[block].instructions;
                code.budget.spend(instructions.len() as u64);
                let mut rest = instructions.as_slice();
                while let [instruction, others @ ..] = rest {
                    let put = others.first().and_then(|pop| put(instruction, pop, convention));
                    rest = others.get(usize::from(put.is_some())..).unwrap_or_default();
                    match put {
                        Some(register) => changes.registers |= bit(register),
                        None => changes.add(instruction, convention),
                    }
                }
            }
            loops.insert(head, Loop { changes: Rc::new(changes), component });
        }
        loops
    }
}

/// Returns the register into which two instructions put a number by way of the stack, which is the shortest way: they
/// leave it as it was.
fn put(push: &Instruction, pop: &Instruction, convention: &Convention) -> Option<u8> {
    let [Effect::Push(Expression::Constant(_))] = push.effects() else { return None };
    let top = Address { base: Some(convention.stack_pointer), ..Address::default() };
    match pop.effects() {
        [
            Effect::Let { value: Expression::Load { address, .. }, .. },
            Effect::Set { .. },
            Effect::Set { register, .. },
        ] if pop.moves_stack() && *address == top => Some(*register),
        _ => None,
    }
}

/// What the instructions of a loop change.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    registers: RegisterSet,
    /// Vector registers.
    vectors: RegisterSet,
    /// Whether they call, or store to anything but a named stack slot.
    memory: bool,
    /// Whether they store to an element of an array, which may be on the stack.
    elements: bool,
    /// Whether they push, or store to an element of an array relative to the stack pointer.
    stack: bool,
    slots: Vec<LoopSlot>,
    /// The stack slots whose address they take.
    addresses_taken: Vec<LoopSlot>,
}

/// A stack slot as an instruction names it.
#[derive(Clone, Copy, Debug)]
struct LoopSlot {
    /// The stack pointer or the frame pointer.
    base: u8,
    /// Bytes from there.
    displacement: i64,
    /// Bytes.
    width: i64,
}

impl Changes {
    /// Returns whether they write a register.
    pub fn writes(&self, register: usize) -> bool {
        self.registers >> register & 1 == 1
    }

    /// Adds what one instruction changes.
    fn add(&mut self, instruction: &Instruction, convention: &Convention) {
        if instruction.is_call() {
            self.memory = true;
            self.vectors = RegisterSet::MAX;
            self.registers |= convention.caller_saved;
        }
        for effect in instruction.effects() {
            self.registers |= effect.writes();
            self.addresses_taken.extend(address_taken(effect, convention));
            match effect {
                Effect::Push(_) => {
                    self.stack = true;
                    self.registers |= bit(convention.stack_pointer);
                }
                Effect::SetLane { vector, .. } => self.vectors |= bit(*vector),
                Effect::Clobber(clobber) => self.vectors |= clobber.vectors,
                _ => {}
            }
        }
        let stores = instruction.accesses().filter(|access| access.kind == AccessKind::Written);
        stores.for_each(|store| self.add_store(&store.address, store.bytes, convention));
    }

    fn add_store(&mut self, address: &Address, bytes: Option<u16>, convention: &Convention) {
        let is_direct = address.index.is_none() && !address.is_elsewhere;
        let slot = bytes.and_then(|bytes| slot(address, bytes.into(), convention));
        match slot.filter(|_| is_direct) {
            Some(slot) => self.slots.push(slot),
            None => self.memory = true,
        }
        if address.index.is_some() {
            self.elements = true;
            self.stack |= address.base == Some(convention.stack_pointer);
        }
    }
}

impl State {
    /// Forgets what a loop changes. Its head is the block at `address`, which begins by writing `replaced`. Facts
    /// remain: they are about values, not about places.
    pub fn enter_loop(&mut self, changes: &Changes, replaced: RegisterSet, address: FileAddress, atoms: &mut Atoms) {
        if changes.memory {
            self.generation = address;
        }
        self.forget_slots_of(changes, atoms);
        let pointer = atoms.convention().stack_pointer();
        for number in (0..self.registers.len()).filter(|number| *number != pointer && changes.writes(*number)) {
            let changed = changed(number, address, atoms);
            let before = std::mem::replace(&mut self.registers[number], changed);
            if replaced >> number & 1 == 0 {
                self.escape_value(&before, atoms);
            }
        }
        self.lanes.retain(|(vector, _), _| changes.vectors & bit(*vector) == 0);
        self.flags = Flags::Unknown;
    }

    /// Forgets the slots that a loop stores to: those it names, and, if it stores elsewhere or calls, all from the
    /// lowest on whose address is known to anyone; all of them if it moves the stack pointer.
    fn forget_slots_of(&mut self, changes: &Changes, atoms: &mut Atoms) {
        // A frame pointer that the loop changes may point anywhere.
        let offset = |state: &Self, atoms: &mut Atoms, slot: &LoopSlot| {
            let base = usize::from(slot.base);
            let base = state.registers.get(base).filter(|_| !changes.writes(base))?;
            Some(atoms.stack_offset(base)?.saturating_add(slot.displacement))
        };
        let (pointer, frame) = (atoms.convention().stack_pointer(), atoms.convention().frame_pointer());
        if changes.stack || changes.writes(pointer) {
            self.forget_slots(i64::MIN, atoms);
        }
        let mut elsewhere = changes.memory;
        for slot in &changes.slots {
            match offset(self, atoms, slot) {
                Some(at) => self.overwrite_slots(at, slot.width),
                None => elsewhere = true,
            }
        }
        for slot in &changes.addresses_taken {
            if let Some(at) = offset(self, atoms, slot) {
                self.escape(at, atoms);
            }
        }
        if !elsewhere {
            return;
        }
        // What the loop makes of these is among the addresses that it takes.
        let is_known = |number| number == pointer || number == frame && !changes.writes(frame);
        let registers = self.registers.iter().enumerate().filter(|(number, _)| !is_known(*number));
        let slots = self.stack.values().map(|(value, _)| value);
        let known = registers.map(|(_, value)| value).chain(slots).filter_map(|value| atoms.reach_on_stack(value));
        let mut reached: BTreeSet<i64> = known.collect();
        reached.extend(&self.escaped);
        if changes.elements && !reached.is_empty() {
            reached = BTreeSet::from([i64::MIN]);
        }
        for lowest in reached {
            self.forget_slots(lowest, atoms);
            // An earlier iteration may have passed it on.
            self.escape(lowest, atoms);
        }
    }
}

/// Returns what a register holds at the head of a loop that changes it.
pub fn changed(register: usize, head: FileAddress, atoms: &mut Atoms) -> Value {
    atoms.value(Atom::Opaque { address: head, index: u32::try_from(register).unwrap_or(u32::MAX) })
}

/// Returns the registers that a block writes before it reads them, so that what they held has no effect.
pub fn replaced(block: &Block) -> RegisterSet {
    let (mut read, mut written): (RegisterSet, RegisterSet) = (0, 0);
    let before_calls = block.instructions.iter().take_while(|instruction| !instruction.is_call());
    for effect in before_calls.flat_map(Instruction::effects) {
        read |= (effect.reads() | if effect.sets_part() { effect.writes() } else { 0 }) & !written;
        written |= effect.writes();
    }
    written & !read
}

/// Returns the stack slot whose address an effect puts elsewhere than into the stack pointer.
fn address_taken(effect: &Effect, convention: &Convention) -> Option<LoopSlot> {
    // What is computed from an address can be that of any slot.
    let any = |registers| {
        let base = numbers(registers).find(|number| convention.is_frame(*number))?;
        Some(LoopSlot { base, displacement: i64::MIN, width: 0 })
    };
    let value = match effect {
        Effect::Set { register, value, .. } if *register != convention.stack_pointer => value,
        Effect::Let { value, .. } | Effect::SetLane { value, .. } | Effect::Store { value, .. } => value,
        Effect::Clobber(clobber) => return any(clobber.from),
        _ => return None,
    };
    if let Some(address) = value.as_address().filter(|address| address.index.is_none()) {
        return slot(&address, 0, convention);
    }
    any(value.carries())
}

/// Returns the stack slot that an address names, relative to the stack pointer or the frame pointer.
fn slot(address: &Address, width: i64, convention: &Convention) -> Option<LoopSlot> {
    let base = address.base.filter(|base| convention.is_frame(*base))?;
    Some(LoopSlot { base, displacement: address.displacement.cast_signed(), width })
}
