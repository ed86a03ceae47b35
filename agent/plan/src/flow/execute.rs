//! Symbolic execution: what every register holds at every instruction of a function.
//!
//! One pass over the blocks in reverse post-order. Where paths meet, values that differ are merged;
//! at the head of a loop what the loop changes is forgotten, and a branch that what is known decides
//! is not taken. Calls return an atom that
//! names them and change what the System V ABI lets them change. An instruction that is not
//! modelled makes whatever it writes opaque, so an unknown instruction never leads to a wrong value.

use std::collections::HashMap;
use std::rc::Rc;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use petgraph::visit::DfsPostOrder;

use crate::code::graph::{Block, EdgeKind, FunctionCode};
use crate::flow::facts;
use crate::flow::state::{CALLER_SAVED, Flags, LoopEffects, LoopSlot, RBP, RSP, State};
use crate::flow::value::{Atom, Atoms, Condition, Relation, Value};

/// What executing one instruction takes.
const STEPS_OF_ONE: u64 = 2;
/// Most bytes that the states in one block may take.
const MAX_STATES_BYTES: usize = 32 << 20;

/// Where a memory operand points.
enum Place {
    /// A stack slot, by its offset from the stack pointer at entry.
    Stack(i64),
    /// A fixed virtual address.
    Global(u64),
    /// Anywhere.
    Unknown,
}

/// What a call is known to leave in stack slots of 8 bytes, by their offset from the stack pointer
/// at the caller's entry.
pub type CallEffects = Vec<(i64, Value)>;

/// A function with the state at the beginning of each of its blocks.
pub struct Execution<'a> {
    /// The function.
    pub code: &'a FunctionCode,
    /// Every atom that occurs in the states.
    pub atoms: Atoms,
    /// The blocks in reverse post-order.
    pub order: Vec<usize>,
    entry_states: Vec<Option<State>>,
    effects: HashMap<usize, Rc<LoopEffects>>,
    known_calls: HashMap<u64, CallEffects>,
    without: Option<(usize, EdgeKind)>,
    info: InstructionInfoFactory,
}

impl<'a> Execution<'a> {
    /// Executes `code` from its entry.
    pub fn run(code: &'a FunctionCode) -> Self {
        let mut atoms = Atoms::new(code.budget.clone());
        let entry = State::at_entry(&mut atoms);
        Self::run_from(code, entry, atoms, None)
    }

    /// Executes `code` from its entry, where `entry` holds, as if the edge `without` were not there.
    pub fn run_from(
        code: &'a FunctionCode,
        entry: State,
        atoms: Atoms,
        without: Option<(usize, EdgeKind)>,
    ) -> Self {
        let mut execution = Self {
            code,
            atoms,
            order: reverse_post_order(code),
            entry_states: vec![None; code.blocks.len()],
            effects: HashMap::new(),
            known_calls: HashMap::new(),
            without,
            info: InstructionInfoFactory::new(),
        };
        execution.find_effects();
        execution.execute(&entry);
        execution
    }

    /// Executes the function once more, with what is now known of its calls.
    pub fn again(&mut self, known_calls: HashMap<u64, CallEffects>) {
        self.known_calls = known_calls;
        let entry = State::at_entry(&mut self.atoms);
        self.execute(&entry);
    }

    fn execute(&mut self, entry: &State) {
        let order = self.order.clone();
        let mut position = vec![usize::MAX; self.code.blocks.len()];
        for (index, block) in order.iter().enumerate() {
            position[*block] = index;
        }
        for index in order {
            let state = self.merge_into(index, &position, entry);
            let bytes = state.as_ref().map_or(0, State::bytes);
            if !self.code.budget.keep(bytes) {
                return;
            }
            self.entry_states[index] = state;
        }
    }

    fn merge_into(&mut self, index: usize, position: &[usize], entry: &State) -> Option<State> {
        let block = self.code.blocks.get(index)?;
        let mut incoming = Vec::new();
        let mut is_head = false;
        if index == 0 {
            incoming.push(entry.clone());
        }
        let mut predecessors = block.predecessors.clone();
        predecessors.sort_unstable();
        predecessors.dedup();
        for predecessor in predecessors {
            if position[predecessor] >= position[index] {
                is_head |= position[predecessor] != usize::MAX;
                continue;
            }
            incoming.extend(self.edges_between(predecessor, index));
        }
        let mut state = State::merge(incoming, block.address(), &mut self.atoms)?;
        if is_head && let Some(effects) = self.effects.get(&index).cloned() {
            state.enter_loop(&effects, block.address(), &mut self.atoms);
        }
        Some(state)
    }

    fn find_effects(&mut self) {
        for blocks in self.code.loops() {
            let mut effects = LoopEffects::default();
            for instruction in blocks
                .iter()
                .flat_map(|block| &self.code.blocks[*block].instructions)
            {
                self.add_effects(instruction, &mut effects);
            }
            let effects = Rc::new(effects);
            self.effects
                .extend(blocks.into_iter().map(|block| (block, effects.clone())));
        }
    }

    fn add_effects(&mut self, instruction: &Instruction, effects: &mut LoopEffects) {
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            effects.memory = true;
            for number in CALLER_SAVED {
                effects.registers[number] = true;
            }
            return;
        }
        if instruction.mnemonic() == Mnemonic::Lea
            && let Some(slot) = stack_operand(instruction, 1)
        {
            effects.addresses_taken.push(slot);
        }
        let info = self.info.info(instruction);
        let stores = info
            .used_memory()
            .iter()
            .any(|memory| writes(memory.access()));
        if stores && instruction.is_stack_instruction() {
            effects.stack = true;
        } else if stores {
            match stack_operand(instruction, 0) {
                Some(slot) => effects.slots.push(slot),
                None => effects.memory = true,
            }
        }
        for used in info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
        {
            if let Some(number) = general_register(used.register()) {
                effects.registers[number] = true;
            }
        }
    }

    fn edges_between(&mut self, from: usize, to: usize) -> Vec<State> {
        let Some(block) = self.code.blocks.get(from) else {
            return Vec::new();
        };
        let kinds: Vec<EdgeKind> = block
            .successors
            .iter()
            .filter(|(successor, _)| *successor == to)
            .map(|(_, kind)| *kind)
            .collect();
        let Some(end) = self.state_at_end(from) else {
            return Vec::new();
        };
        kinds
            .into_iter()
            .filter_map(|kind| {
                (self.without != Some((from, kind)))
                    .then(|| self.along_edge(&end, block, kind))
                    .flatten()
            })
            .collect()
    }

    /// What is known behind an edge out of a block at whose end `end` holds; `None` where that rules
    /// the edge out.
    pub fn along_edge(&mut self, end: &State, block: &Block, kind: EdgeKind) -> Option<State> {
        self.code.budget.scan(end.bytes());
        let mut state = end.clone();
        let last = block.instructions.last()?;
        if last.is_jcc_short_or_near()
            && let Some(condition) = end.flags.condition(last.condition_code())
        {
            let condition = match kind {
                EdgeKind::FallThrough => condition.negated(),
                _ => condition,
            };
            let condition = self.atoms.without_truth(condition);
            if self.decide(&end.facts, &condition) == Some(false) {
                return None;
            }
            let is_whole = condition.bits == 64
                || self.atoms.zero_extended(&condition.left, condition.bits) == condition.left;
            state.assume(condition, is_whole);
        }
        Some(state)
    }

    /// Whether a condition holds, where `facts` decide it, or that no address on the stack is 0.
    fn decide(&mut self, facts: &[Condition], condition: &Condition) -> Option<bool> {
        let null_check = condition.right == Value::constant(0)
            && condition.bits == 64
            && condition.left.as_constant().is_none()
            && self.stack_offset(&condition.left).is_some();
        match condition.relation {
            Relation::Equal if null_check => Some(false),
            Relation::NotEqual if null_check => Some(true),
            _ => facts::decide(facts, condition),
        }
    }

    /// The state before the first instruction of a block; `None` where it cannot be reached.
    pub fn state_at(&self, block: usize) -> Option<&State> {
        self.entry_states.get(block)?.as_ref()
    }

    /// The states before each instruction of a block, and after the last.
    pub fn states_in(&mut self, block: usize) -> Vec<State> {
        let Some(mut state) = self.state_at(block).cloned() else {
            return Vec::new();
        };
        let mut states = Vec::new();
        let mut bytes = 0;
        for instruction in self
            .code
            .blocks
            .get(block)
            .map_or(&[][..], |block| &block.instructions)
        {
            bytes += state.bytes();
            self.code.budget.scan(state.bytes());
            if bytes > MAX_STATES_BYTES {
                self.code.budget.exhaust();
                break;
            }
            states.push(state.clone());
            self.step(&mut state, instruction);
        }
        states.push(state);
        states
    }

    fn state_at_end(&mut self, block: usize) -> Option<State> {
        let mut state = self.state_at(block).cloned()?;
        for instruction in &self.code.blocks.get(block)?.instructions {
            self.step(&mut state, instruction);
        }
        Some(state)
    }

    /// The state at the beginning of the block that an edge leads to, coming along that edge only.
    pub fn state_along(&mut self, from: usize, kind: EdgeKind) -> Option<State> {
        let end = self.state_at_end(from)?;
        let block = self.code.blocks.get(from)?;
        self.along_edge(&end, block, kind)
    }

    /// Executes one instruction.
    pub fn step(&mut self, state: &mut State, instruction: &Instruction) {
        if !self.code.budget.spend(STEPS_OF_ONE) {
            return;
        }
        match instruction.mnemonic() {
            Mnemonic::Mov => {
                let value = self.read(state, instruction, 1);
                self.write(state, instruction, 0, value);
            }
            Mnemonic::Movzx => {
                let bits = operand_bits(instruction, 1);
                let value = self.read(state, instruction, 1);
                let value = self.atoms.zero_extended(&value, bits);
                self.write(state, instruction, 0, value);
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let bits = operand_bits(instruction, 1);
                let value = self.read(state, instruction, 1);
                let value = self.atoms.sign_extended(&value, bits);
                self.write(state, instruction, 0, value);
            }
            Mnemonic::Lea => {
                let value = self.effective_address(state, instruction);
                let value = value.unwrap_or_else(|| self.opaque(instruction, 0));
                self.write(state, instruction, 0, value);
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => {
                self.add(state, instruction)
            }
            Mnemonic::Cmp => {
                state.flags = Flags::Comparison {
                    left: self.read(state, instruction, 0),
                    right: self.read(state, instruction, 1),
                    bits: operand_bits(instruction, 0),
                };
            }
            Mnemonic::Test | Mnemonic::And | Mnemonic::Or | Mnemonic::Xor => {
                self.logic(state, instruction)
            }
            Mnemonic::Push => {
                let value = self.read(state, instruction, 0);
                let top = state.registers[RSP].offset(8_u64.wrapping_neg());
                state.registers[RSP] = top.clone();
                if let Some(offset) = self.stack_offset(&top) {
                    state.store_slot(offset, 8, value);
                }
            }
            Mnemonic::Pop => {
                let top = state.registers[RSP].clone();
                let value = match self.stack_offset(&top) {
                    Some(offset) => self.load_slot(state, instruction, offset, 8),
                    None => self.opaque(instruction, 0),
                };
                state.registers[RSP] = top.offset(8);
                self.write(state, instruction, 0, value);
            }
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Ret => {}
            _ if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() => {}
            _ if is_conditional_move(instruction) => {
                let then = self.read(state, instruction, 1);
                let otherwise = self.read(state, instruction, 0);
                let value = match state.flags.condition(instruction.condition_code()) {
                    Some(condition) => self.atoms.select(condition, then, otherwise),
                    None if then == otherwise => then,
                    None => self.opaque(instruction, 0),
                };
                self.write(state, instruction, 0, value);
            }
            _ if is_set_on_condition(instruction) => {
                let value = match state.flags.condition(instruction.condition_code()) {
                    Some(condition) => self.atoms.truth(condition),
                    None => {
                        let byte = self.opaque(instruction, 0);
                        self.atoms.zero_extended(&byte, 8)
                    }
                };
                self.write(state, instruction, 0, value);
            }
            _ if instruction.flow_control() == FlowControl::Call
                || instruction.flow_control() == FlowControl::IndirectCall =>
            {
                self.call(state, instruction);
            }
            _ => self.unmodelled(state, instruction),
        }
    }

    fn add(&mut self, state: &mut State, instruction: &Instruction) {
        let bits = operand_bits(instruction, 0);
        let left = self.read(state, instruction, 0);
        let right = match instruction.mnemonic() {
            Mnemonic::Inc | Mnemonic::Dec => Value::constant(1),
            _ => self.read(state, instruction, 1),
        };
        let subtracts = matches!(instruction.mnemonic(), Mnemonic::Sub | Mnemonic::Dec);
        let result = if subtracts {
            left.minus(&right)
        } else {
            left.plus(&right, 1)
        };
        let result = if result.is_small() {
            result
        } else {
            self.opaque(instruction, 0)
        };
        self.write(state, instruction, 0, result.clone());
        state.flags = if instruction.mnemonic() == Mnemonic::Sub {
            Flags::Comparison { left, right, bits }
        } else {
            Flags::ZeroAndSign { of: result, bits }
        };
    }

    fn logic(&mut self, state: &mut State, instruction: &Instruction) {
        let bits = operand_bits(instruction, 0);
        let left = self.read(state, instruction, 0);
        let right = self.read(state, instruction, 1);
        let same = left == right;
        let result = match (
            instruction.mnemonic(),
            left.as_constant(),
            right.as_constant(),
        ) {
            (Mnemonic::Xor, ..) if same => Value::constant(0),
            (Mnemonic::Test | Mnemonic::And | Mnemonic::Or, ..) if same => left,
            (Mnemonic::Test | Mnemonic::And, Some(left), Some(right)) => {
                Value::constant(left & right)
            }
            (Mnemonic::Or, Some(left), Some(right)) => Value::constant(left | right),
            (Mnemonic::Xor, Some(left), Some(right)) => Value::constant(left ^ right),
            (Mnemonic::Test | Mnemonic::And, _, Some(1)) if self.atoms.is_truth(&left) => left,
            (Mnemonic::Or, _, Some(u64::MAX)) => Value::constant(u64::MAX),
            _ => self.opaque(instruction, 0),
        };
        if instruction.mnemonic() != Mnemonic::Test {
            self.write(state, instruction, 0, result.clone());
        }
        // Logic clears carry and overflow, as a comparison with zero does.
        state.flags = Flags::Comparison {
            left: result,
            right: Value::constant(0),
            bits,
        };
    }

    fn call(&mut self, state: &mut State, instruction: &Instruction) {
        let callee = (instruction.flow_control() == FlowControl::Call)
            .then(|| instruction.near_branch_target());
        let known = callee.and_then(|callee| self.code.callees.get(&callee).copied());
        for number in CALLER_SAVED {
            if known.is_some_and(|callee| !callee.reads(number)) {
                continue;
            }
            if let Some(offset) = self.stack_offset(&state.registers[number]) {
                state.escaped = Some(state.escaped.map_or(offset, |lowest| lowest.min(offset)));
            }
        }
        for number in CALLER_SAVED {
            if known.is_some_and(|callee| !callee.writes(number)) {
                continue;
            }
            let index = u32::try_from(number).unwrap_or(u32::MAX);
            state.registers[number] = self.opaque(instruction, index);
        }
        state.registers[0] = self.atoms.value(Atom::Call {
            site: instruction.ip(),
            callee,
        });
        state.flags = Flags::Unknown;
        if let Some(top) = self.stack_offset(&state.registers[RSP]) {
            state.stack.retain(|at, _| *at >= top);
        }
        state.clobber_memory(instruction.ip());
        for (offset, value) in self
            .known_calls
            .get(&instruction.ip())
            .into_iter()
            .flatten()
        {
            state.store_slot(*offset, 8, value.clone());
        }
    }

    fn unmodelled(&mut self, state: &mut State, instruction: &Instruction) {
        let info = self.info.info(instruction).clone();
        if info
            .used_memory()
            .iter()
            .any(|memory| writes(memory.access()))
        {
            match self.place(state, instruction) {
                Place::Stack(offset) => state.forget_slots(offset, 64),
                _ => state.clobber_memory(instruction.ip()),
            }
        }
        for used in info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
        {
            if let Some(number) = general_register(used.register()) {
                let index = u32::try_from(number).unwrap_or(u32::MAX);
                state.registers[number] = self.opaque(instruction, index);
            }
        }
        if instruction.rflags_modified() != 0 {
            state.flags = Flags::Unknown;
        }
    }

    /// The operand's value; its upper bits, past the operand's width, mean nothing unless it is 64
    /// or 32 bits wide.
    fn read(&mut self, state: &mut State, instruction: &Instruction, operand: u32) -> Value {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let Some(number) = general_register(register) else {
                    return self.opaque(instruction, 64 + operand);
                };
                let value = state.registers[number].clone();
                match register.size() {
                    8 => value,
                    4 => self.atoms.zero_extended(&value, 32),
                    2 => self.atoms.zero_extended(&value, 16),
                    _ if is_high_byte(register) => self.opaque(instruction, 64 + operand),
                    _ => self.atoms.zero_extended(&value, 8),
                }
            }
            OpKind::Memory => {
                let width = u8::try_from(instruction.memory_size().size()).unwrap_or(0);
                match self.place(state, instruction) {
                    Place::Stack(offset) => self.load_slot(state, instruction, offset, width),
                    Place::Global(address) if matches!(width, 1 | 2 | 4 | 8) => {
                        self.atoms.value(Atom::Global {
                            address,
                            width,
                            generation: state.generation,
                        })
                    }
                    _ => {
                        let value = self.opaque(instruction, 64 + operand);
                        self.atoms.zero_extended(&value, width.saturating_mul(8))
                    }
                }
            }
            _ => match instruction.try_immediate(operand) {
                Ok(immediate) => Value::constant(immediate),
                Err(_) => self.opaque(instruction, 64 + operand),
            },
        }
    }

    fn write(&mut self, state: &mut State, instruction: &Instruction, operand: u32, value: Value) {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let Some(number) = general_register(register) else {
                    return;
                };
                state.registers[number] = match register.size() {
                    8 => value,
                    4 => self.atoms.zero_extended(&value, 32),
                    1 if !is_high_byte(register) => {
                        let byte = self.atoms.zero_extended(&value, 8);
                        let rest = state.registers[number].clone();
                        self.atoms.low_byte(byte, rest)
                    }
                    _ => self.opaque(instruction, 32),
                };
            }
            OpKind::Memory => {
                let width = u8::try_from(instruction.memory_size().size()).unwrap_or(0);
                match self.place(state, instruction) {
                    Place::Stack(offset) => state.store_slot(offset, width, value),
                    Place::Global(_) => state.generation = instruction.ip(),
                    Place::Unknown => state.clobber_memory(instruction.ip()),
                }
            }
            _ => {}
        }
    }

    fn load_slot(
        &mut self,
        state: &mut State,
        instruction: &Instruction,
        offset: i64,
        width: u8,
    ) -> Value {
        if let Some((value, stored)) = state.stack.get(&offset) {
            let value = value.clone();
            if *stored == width {
                return self.atoms.zero_extended(&value, width.saturating_mul(8));
            }
            if *stored > width {
                return self.atoms.zero_extended(&value, width.saturating_mul(8));
            }
        }
        let value = self.opaque(instruction, 96);
        let value = self.atoms.zero_extended(&value, width.saturating_mul(8));
        state.store_slot(offset, width, value.clone());
        value
    }

    fn effective_address(&mut self, state: &State, instruction: &Instruction) -> Option<Value> {
        let base = instruction.memory_base();
        let displacement = instruction.memory_displacement64();
        if base == Register::RIP {
            return Some(Value::constant(displacement));
        }
        let mut address = Value::constant(displacement);
        if base != Register::None {
            let number = general_register(base).filter(|_| base.size() == 8)?;
            address = address.plus(&state.registers[number], 1);
        }
        let index = instruction.memory_index();
        if index != Register::None {
            let number = general_register(index).filter(|_| index.size() == 8)?;
            address = address.plus(
                &state.registers[number],
                u64::from(instruction.memory_index_scale()),
            );
        }
        address.is_small().then_some(address)
    }

    fn place(&mut self, state: &State, instruction: &Instruction) -> Place {
        if instruction.segment_prefix() != Register::None {
            return Place::Unknown;
        }
        let Some(address) = self.effective_address(state, instruction) else {
            return Place::Unknown;
        };
        match (address.as_constant(), self.stack_offset(&address)) {
            (Some(address), _) => Place::Global(address),
            (None, Some(offset)) => Place::Stack(offset),
            (None, None) => Place::Unknown,
        }
    }

    /// Offset from the stack pointer at entry of the stack slot that an instruction's memory operand
    /// names.
    pub fn stack_operand_offset(
        &mut self,
        state: &State,
        instruction: &Instruction,
    ) -> Option<i64> {
        match self.place(state, instruction) {
            Place::Stack(offset) => Some(offset),
            _ => None,
        }
    }

    /// The address of an instruction's memory operand, where it is a global's.
    pub fn global_operand(&mut self, state: &State, instruction: &Instruction) -> Option<u64> {
        match self.place(state, instruction) {
            Place::Global(address) => Some(address),
            Place::Stack(_) | Place::Unknown => None,
        }
    }

    /// Offset from the stack pointer at entry, where the value is an address on the stack.
    pub fn stack_offset(&mut self, value: &Value) -> Option<i64> {
        let entry = self.atoms.value(Atom::Entry(4));
        value.minus(&entry).as_constant().map(u64::cast_signed)
    }

    fn opaque(&mut self, instruction: &Instruction, index: u32) -> Value {
        self.atoms.value(Atom::Opaque {
            address: instruction.ip(),
            index,
        })
    }
}

/// The stack slot that an operand names directly, relative to a register.
fn stack_operand(instruction: &Instruction, operand: u32) -> Option<LoopSlot> {
    let base = general_register(instruction.memory_base())?;
    let direct = instruction.op_kind(operand) == OpKind::Memory
        && matches!(base, RSP | RBP)
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    direct.then(|| LoopSlot {
        base,
        displacement: instruction.memory_displacement64().cast_signed(),
        width: i64::try_from(instruction.memory_size().size()).unwrap_or(i64::MAX),
    })
}

/// Whether an access changes what it accesses.
pub fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn reverse_post_order(code: &FunctionCode) -> Vec<usize> {
    let graph = code.graph();
    let Some(entry) = graph.node_indices().next() else {
        return Vec::new();
    };
    let mut walk = DfsPostOrder::new(&graph, entry);
    let mut order = Vec::new();
    while let Some(node) = walk.next(&graph) {
        order.push(node.index());
    }
    order.reverse();
    order
}

/// x86-64 number of a general register, whatever part of it is named.
pub fn general_register(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

/// Width in bits of an operand.
fn operand_bits(instruction: &Instruction, operand: u32) -> u8 {
    let bytes = match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        _ => instruction.memory_size().size(),
    };
    u8::try_from(bytes.saturating_mul(8)).unwrap_or(u8::MAX)
}

fn is_conditional_move(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Cmovne
            | Mnemonic::Cmovns
            | Mnemonic::Cmovs
    )
}

fn is_set_on_condition(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Seta
            | Mnemonic::Setae
            | Mnemonic::Setb
            | Mnemonic::Setbe
            | Mnemonic::Sete
            | Mnemonic::Setg
            | Mnemonic::Setge
            | Mnemonic::Setl
            | Mnemonic::Setle
            | Mnemonic::Setne
            | Mnemonic::Setns
            | Mnemonic::Sets
    )
}
