//! The order in which the blocks of a function are executed, the loops that this makes of them, what a loop changes,
//! and the state at its head, where that is forgotten.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::ir::Instruction;
use evictscope_model::FileAddress;
use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use petgraph::visit::DfsPostOrder;

use crate::code::graph::{Block, BlockId, FunctionCode, PerBlock};
use crate::code::instruction::{CALLER_SAVED, RBP, RSP, RegisterSet, general_register, is_call, writes};
use crate::flow::state::State;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::condition::Flags;
use crate::flow::values::value::Value;

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
    pub effects: Rc<LoopEffects>,
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
    pub fn loops(&self, code: &FunctionCode, info: &mut InstructionInfoFactory) -> HashMap<BlockId, Loop> {
        let components = code.loops();
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
            let mut effects = LoopEffects::default();
            for block in blocks {
                let instructions = &code.blocks[block].instructions;
                code.budget.spend(instructions.len() as u64);
                for instruction in instructions {
                    effects.add(instruction, info);
                }
            }
            loops.insert(head, Loop { effects: Rc::new(effects), component });
        }
        loops
    }
}

/// What the instructions of a loop change.
#[derive(Clone, Debug, Default)]
pub struct LoopEffects {
    /// By x86-64 number.
    registers: [bool; 16],
    /// Vector registers: bit i is number i.
    vectors: u32,
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
    /// x86-64 number of the register that it is relative to.
    base: usize,
    /// Bytes from there.
    displacement: i64,
    /// Bytes.
    width: i64,
}

impl LoopEffects {
    /// Returns whether they write a register, by its x86-64 number.
    pub fn changes(&self, register: usize) -> bool {
        self.registers.get(register).is_some_and(|changed| *changed)
    }

    /// Adds what one instruction changes.
    pub fn add(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        if is_call(instruction) {
            self.memory = true;
            self.vectors = u32::MAX;
            for number in CALLER_SAVED {
                self.registers[number] = true;
            }
            return;
        }
        self.addresses_taken.extend(address_taken(instruction));
        let info = info.info(instruction);
        let stores = (info.used_memory().iter()).any(|memory| writes(memory.access()));
        if stores && instruction.is_stack_instruction() {
            self.stack = true;
        } else if stores {
            match stack_operand(instruction, 0) {
                Some(slot) => self.slots.push(slot),
                None => self.memory = true,
            }
            if instruction.memory_index() != Register::None {
                self.elements = true;
                self.stack |= instruction.memory_base() == Register::RSP;
            }
        }
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let register = used.register();
            if let Some(number) = general_register(register) {
                self.registers[number] = true;
            } else if register.is_vector_register() {
                self.vectors |= 1 << register.full_register().number();
            }
        }
    }
}

impl State {
    /// Forgets what a loop changes. Its head is the block at `address`, which begins by writing `replaced`. Facts
    /// remain: they are about values, not about places.
    pub fn enter_loop(
        &mut self,
        effects: &LoopEffects,
        replaced: RegisterSet,
        address: FileAddress,
        atoms: &mut Atoms,
    ) {
        if effects.memory {
            self.generation = address;
        }
        self.forget_slots_of(effects, atoms);
        for number in (0..self.registers.len()).filter(|number| *number != RSP) {
            if effects.registers[number] {
                let changed = changed(number, address, atoms);
                let before = std::mem::replace(&mut self.registers[number], changed);
                if replaced & (1 << number) == 0 {
                    self.escape_value(&before, atoms);
                }
            }
        }
        self.lanes.retain(|(number, _), _| effects.vectors >> number & 1 == 0);
        self.flags = Flags::Unknown;
    }

    /// Forgets the slots that a loop stores to: those it names, and, if it stores elsewhere or calls, all from the
    /// lowest on whose address is known to anyone; all of them if it moves the stack pointer.
    fn forget_slots_of(&mut self, effects: &LoopEffects, atoms: &mut Atoms) {
        // A frame pointer that the loop changes may point anywhere.
        let offset = |state: &Self, atoms: &mut Atoms, slot: &LoopSlot| {
            let is_changed = effects.registers[slot.base];
            let base = state.registers.get(slot.base).filter(|_| !is_changed)?;
            atoms.stack_offset(base)?.checked_add(slot.displacement)
        };
        if effects.stack || effects.registers[RSP] {
            self.forget_slots(i64::MIN, atoms);
        }
        let mut elsewhere = effects.memory;
        for slot in &effects.slots {
            match offset(self, atoms, slot) {
                Some(at) => self.overwrite_slots(at, slot.width),
                None => elsewhere = true,
            }
        }
        for slot in &effects.addresses_taken {
            if let Some(at) = offset(self, atoms, slot) {
                self.escape(at, atoms);
            }
        }
        if !elsewhere {
            return;
        }
        let registers = self.registers.iter().enumerate().filter(|(number, _)| *number != RSP);
        let slots = self.stack.values().map(|(value, _)| value);
        let known = registers.map(|(_, value)| value).chain(slots).filter_map(|value| atoms.reach_on_stack(value));
        let mut reached: BTreeSet<i64> = known.collect();
        reached.extend(&self.escaped);
        if effects.elements && !reached.is_empty() {
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
pub fn replaced(block: &Block, info: &mut InstructionInfoFactory) -> RegisterSet {
    let (mut read, mut written): (RegisterSet, RegisterSet) = (0, 0);
    for instruction in block.instructions.iter().take_while(|instruction| !is_call(instruction)) {
        let used = info.info(instruction).used_registers();
        let numbers = used.iter().filter_map(|used| {
            let is_whole = used.access() == OpAccess::Write && used.register().size() >= 4;
            Some((general_register(used.register())?, is_whole))
        });
        let mut whole: RegisterSet = 0;
        for (number, is_whole) in numbers {
            if is_whole { whole |= 1 << number } else { read |= (1 << number) & !written }
        }
        written |= whole;
    }
    written & !read
}

/// Returns the stack slot whose address an instruction puts into a register.
fn address_taken(instruction: &Instruction) -> Option<LoopSlot> {
    match instruction.mnemonic() {
        Mnemonic::Lea => {
            let is_element = instruction.memory_index() != Register::None;
            let displacement = instruction.memory_displacement64().cast_signed();
            slot(instruction.memory_base(), if is_element { i64::MIN } else { displacement }, 0)
        }
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => slot(instruction.op1_register(), 0, 0),
        _ => None,
    }
}

/// Returns the stack slot that an operand names directly, relative to a register.
fn stack_operand(instruction: &Instruction, operand: u32) -> Option<LoopSlot> {
    let is_direct = instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    let displacement = instruction.memory_displacement64().cast_signed();
    let width = i64::try_from(instruction.memory_size().size()).unwrap_or(i64::MAX);
    slot(instruction.memory_base(), displacement, width).filter(|_| is_direct)
}

fn slot(base: Register, displacement: i64, width: i64) -> Option<LoopSlot> {
    let base = general_register(base).filter(|base| matches!(*base, RSP | RBP))?;
    Some(LoopSlot { base, displacement, width })
}
