//! One function, decoded, as a control-flow graph of basic blocks.
//!
//! Decoding follows the control flow from the entry, so data between the instructions does no
//! harm and parts that a compiler moved elsewhere (`.cold`) are found. Jumps to the beginning of
//! another function are tail calls and leave the graph; a call behind which the function ends does
//! not return. `switch` tables are followed where
//! their address is loaded nearby; an indirect jump whose table is not found makes the graph
//! incomplete, which is recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::budget::Budget;
use crate::code::callees::Callee;
use crate::elf::image::Image;

/// Most instructions of one function.
const MAX_INSTRUCTIONS: usize = 20_000;
/// Most entries of one `switch` table.
const MAX_TABLE: usize = 512;
/// How many instructions before an indirect jump its table may be loaded.
const TABLE_DISTANCE: usize = 64;

/// What looking for a `switch` table takes.
const STEPS_TO_FOLLOW: u64 = 256;
/// What one target of a `switch` takes, as edge of the function's graph.
const BYTES_OF_TARGET: usize = 128;
/// What decoding one instruction and finding its place takes.
const STEPS_TO_DECODE: u64 = 8;
/// How many instructions before its comparison the canary is loaded.
const CANARY_DISTANCE: usize = 2;

/// Functions of Redis and libc that do not return.
const NORETURN: [&str; 5] = [
    "_serverAssert",
    "_serverPanic",
    "abort",
    "exit",
    "__stack_chk_fail",
];

/// Why a function could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The address is not in the file's code, or the bytes there are no instructions.
    #[error("no valid instructions at {0:#x}")]
    NotCode(u64),
    /// Larger than any eviction function could be.
    #[error("more than {MAX_INSTRUCTIONS} instructions")]
    TooLarge,
}

/// How control passes from one block to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// By a jump, taken.
    Taken,
    /// To the instruction that follows.
    FallThrough,
    /// Through a `switch` table.
    Switch,
}

/// A basic block: only its first instruction is jumped to, only its last jumps.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its instructions, at least one.
    pub instructions: Vec<Instruction>,
    /// Indices of the blocks that can follow.
    pub successors: Vec<(usize, EdgeKind)>,
    /// Indices of the blocks that can come before.
    pub predecessors: Vec<usize>,
    /// Whether the function can end here (`ret`, or a tail call).
    pub leaves: bool,
}

impl Block {
    /// Whether it calls anything.
    pub fn calls(&self) -> bool {
        self.instructions.iter().any(|instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        })
    }

    /// Address of the first instruction.
    pub fn address(&self) -> u64 {
        self.instructions.first().map_or(0, Instruction::ip)
    }
}

/// A decoded function.
#[derive(Debug)]
pub struct FunctionCode {
    /// The blocks; the entry is the first.
    pub blocks: Vec<Block>,
    /// What functions that it calls do with registers, where that was found out; others may take an
    /// argument in any register, and change all that the ABI lets them change.
    pub callees: HashMap<u64, Callee>,
    /// Addresses of indirect jumps whose targets are not known.
    pub unresolved_jumps: Vec<u64>,
    /// What the plan for the file may take.
    pub budget: Budget,
}

impl FunctionCode {
    /// Decodes the function at `entry`.
    ///
    /// # Errors
    ///
    /// Where there is no code, or too much.
    pub fn decode(image: &Image<'_>, entry: u64) -> Result<Self, CodeError> {
        let mut walk = Walk::new(image, entry);
        walk.run()?;
        Ok(walk.into_blocks())
    }

    /// The blocks as nodes, in their order, and the ways between them as edges.
    pub fn graph(&self) -> DiGraph<(), ()> {
        self.budget.spend(self.blocks.len() as u64);
        let mut graph = DiGraph::new();
        let nodes: Vec<_> = self.blocks.iter().map(|_| graph.add_node(())).collect();
        for (index, block) in self.blocks.iter().enumerate() {
            for (successor, _) in &block.successors {
                graph.add_edge(nodes[index], nodes[*successor], ());
            }
        }
        graph
    }

    /// The loops: sets of blocks from each of which each other can be reached.
    pub fn loops(&self) -> Vec<Vec<usize>> {
        let graph = self.graph();
        kosaraju_scc(&graph)
            .into_iter()
            .filter(|component| match component.as_slice() {
                [only] => graph.contains_edge(*only, *only),
                _ => true,
            })
            .map(|component| component.into_iter().map(NodeIndex::index).collect())
            .collect()
    }
}

struct Walk<'a, 'data> {
    image: &'a Image<'data>,
    entry: u64,
    instructions: BTreeMap<u64, Instruction>,
    leaders: BTreeSet<u64>,
    switches: BTreeMap<u64, Vec<u64>>,
    unresolved_jumps: Vec<u64>,
}

impl<'a, 'data> Walk<'a, 'data> {
    fn new(image: &'a Image<'data>, entry: u64) -> Self {
        Self {
            image,
            entry,
            instructions: BTreeMap::new(),
            leaders: BTreeSet::from([entry]),
            switches: BTreeMap::new(),
            unresolved_jumps: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), CodeError> {
        let mut pending = vec![self.entry];
        while let Some(address) = pending.pop() {
            self.straight_line(address, &mut pending)?;
        }
        Ok(())
    }

    /// Decodes from `address` up to an instruction that does not fall through.
    fn straight_line(&mut self, address: u64, pending: &mut Vec<u64>) -> Result<(), CodeError> {
        let bytes = self
            .image
            .bytes_at(address)
            .filter(|_| self.image.is_code(address));
        let bytes = bytes.ok_or(CodeError::NotCode(address))?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        while decoder.can_decode() {
            if self.instructions.contains_key(&decoder.ip()) {
                return Ok(());
            }
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(CodeError::NotCode(instruction.ip()));
            }
            if self.instructions.len() >= MAX_INSTRUCTIONS
                || !self.image.budget.spend(STEPS_TO_DECODE)
            {
                return Err(CodeError::TooLarge);
            }
            self.instructions.insert(instruction.ip(), instruction);
            let targets = self.targets(&instruction);
            for target in &targets {
                self.leaders.insert(*target);
                pending.push(*target);
            }
            if !falls_through(self.image, &instruction)
                || self.intact_edge(&instruction) == Some(EdgeKind::Taken)
            {
                return Ok(());
            }
            if instruction.flow_control() == FlowControl::ConditionalBranch {
                self.leaders.insert(instruction.next_ip());
            }
        }
        Err(CodeError::NotCode(decoder.ip()))
    }

    /// Where the instruction can jump to inside the function.
    fn targets(&mut self, instruction: &Instruction) -> Vec<u64> {
        match instruction.flow_control() {
            FlowControl::ConditionalBranch
                if self.intact_edge(instruction) != Some(EdgeKind::FallThrough) =>
            {
                vec![instruction.near_branch_target()]
            }
            FlowControl::UnconditionalBranch
                if !is_tail_call(self.image, self.entry, instruction) =>
            {
                vec![instruction.near_branch_target()]
            }
            FlowControl::IndirectBranch => {
                let targets = self.switch_targets(instruction);
                self.image.budget.spend(STEPS_TO_FOLLOW);
                self.image.budget.keep(BYTES_OF_TARGET * targets.len());
                if targets.is_empty() {
                    self.unresolved_jumps.push(instruction.ip());
                }
                self.switches.insert(instruction.ip(), targets.clone());
                targets
            }
            _ => Vec::new(),
        }
    }

    /// Of a branch on whether the stack protector's canary is intact, the edge where it is; the other
    /// leads to `__stack_chk_fail()`, whose name a static build does not keep.
    fn intact_edge(&self, branch: &Instruction) -> Option<EdgeKind> {
        let edge = match branch.condition_code() {
            ConditionCode::e => EdgeKind::Taken,
            ConditionCode::ne => EdgeKind::FallThrough,
            _ => return None,
        };
        let mut before = self.instructions.range(..branch.ip()).rev().map(|(_, i)| i);
        let compares = |instruction: &Instruction| {
            matches!(
                instruction.mnemonic(),
                Mnemonic::Sub | Mnemonic::Xor | Mnemonic::Cmp
            )
        };
        let comparison = before.next().filter(|last| compares(last))?;
        let before: Vec<_> = before.take(CANARY_DISTANCE).collect();
        // What an operand was loaded from: at the entry, the canary is stored in the slot and then
        // something else may be compared.
        let is_from =
            |operand: u32, is_meant: fn(&Instruction) -> bool| match comparison.op_kind(operand) {
                OpKind::Memory => is_meant(comparison),
                OpKind::Register => {
                    let register = comparison.op_register(operand).full_register();
                    let loads = |load: &&&Instruction| {
                        load.op0_kind() == OpKind::Register
                            && load.op0_register().full_register() == register
                    };
                    before.iter().find(loads).is_some_and(|load| {
                        load.mnemonic() == Mnemonic::Mov
                            && load.op1_kind() == OpKind::Memory
                            && is_meant(load)
                    })
                }
                _ => false,
            };
        let is_check = (is_from(0, is_canary) && is_from(1, on_stack))
            || (is_from(0, on_stack) && is_from(1, is_canary));
        is_check.then_some(edge)
    }

    /// The targets of a `switch`: the entries of the table whose address is loaded last before the
    /// jump, as long as they lie in this function. Entries beyond the table's end that happen to
    /// lie there too only add edges, which is harmless.
    fn switch_targets(&self, jump: &Instruction) -> Vec<u64> {
        // jmp *table(,%index,8)
        if jump.op0_kind() == OpKind::Memory && jump.memory_index_scale() == 8 {
            let table = jump.memory_displacement64();
            return self.table(|index| self.image.pointer_at(table.wrapping_add(8 * index)));
        }
        // lea table(%rip), %base; movslq (%base,%index,4), %offset; add %base, %offset; jmp *%offset
        let loads = self
            .instructions
            .range(..jump.ip())
            .rev()
            .take(TABLE_DISTANCE)
            .filter(|(_, load)| {
                load.code() == Code::Lea_r64_m && load.memory_base() == Register::RIP
            });
        for (_, load) in loads {
            let table = load.memory_displacement64();
            let targets = self.table(|index| {
                let offset = self.image.i32_at(table.wrapping_add(4 * index))?;
                Some(table.wrapping_add_signed(i64::from(offset)))
            });
            if !targets.is_empty() {
                return targets;
            }
        }
        Vec::new()
    }

    fn table(&self, entry: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
        let frame = self.image.frames().at(self.entry);
        let named = self
            .image
            .function_name(self.entry)
            .and_then(|name| self.image.function(name));
        let end = match (frame, named.map(|symbol| symbol.size)) {
            (Some(frame), _) => frame.end,
            (None, Some(size)) if size > 0 => self.entry.saturating_add(size),
            (None, _) => self.entry.saturating_add(64 << 10),
        };
        let mut targets: Vec<u64> = (0..MAX_TABLE as u64)
            .map_while(entry)
            .take_while(|target| (self.entry..end).contains(target))
            .collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    fn into_blocks(self) -> FunctionCode {
        let mut blocks: Vec<Block> = Vec::new();
        let mut index_of = BTreeMap::new();
        let mut ended = true;
        let mut next_ip = 0;
        for (address, instruction) in &self.instructions {
            if ended || self.leaders.contains(address) || *address != next_ip {
                index_of.insert(*address, blocks.len());
                blocks.push(Block {
                    instructions: Vec::new(),
                    successors: Vec::new(),
                    predecessors: Vec::new(),
                    leaves: false,
                });
            }
            if let Some(block) = blocks.last_mut() {
                block.instructions.push(*instruction);
            }
            next_ip = instruction.next_ip();
            ended = instruction.flow_control() == FlowControl::ConditionalBranch
                || !falls_through(self.image, instruction);
        }
        for block in &mut blocks {
            let Some(last) = block.instructions.last().copied() else {
                continue;
            };
            let mut successors = Vec::new();
            let mut add = |address: u64, kind| {
                if let Some(index) = index_of.get(&address) {
                    successors.push((*index, kind));
                }
            };
            match last.flow_control() {
                FlowControl::ConditionalBranch
                    if self.intact_edge(&last) != Some(EdgeKind::FallThrough) =>
                {
                    add(last.near_branch_target(), EdgeKind::Taken);
                }
                FlowControl::UnconditionalBranch => {
                    if is_tail_call(self.image, self.entry, &last) {
                        block.leaves = true;
                    } else {
                        add(last.near_branch_target(), EdgeKind::Taken);
                    }
                }
                FlowControl::IndirectBranch => {
                    for target in self.switches.get(&last.ip()).into_iter().flatten() {
                        add(*target, EdgeKind::Switch);
                    }
                }
                FlowControl::Return => block.leaves = true,
                _ => {}
            }
            if falls_through(self.image, &last) && self.intact_edge(&last) != Some(EdgeKind::Taken)
            {
                add(last.next_ip(), EdgeKind::FallThrough);
            }
            block.successors = successors;
        }
        let entry = index_of.get(&self.entry).copied().unwrap_or(0);
        move_to_front(&mut blocks, entry);
        for index in 0..blocks.len() {
            for (successor, _) in blocks
                .get(index)
                .map(|block| block.successors.clone())
                .unwrap_or_default()
            {
                if let Some(block) = blocks.get_mut(successor) {
                    block.predecessors.push(index);
                }
            }
        }
        FunctionCode {
            blocks,
            callees: HashMap::new(),
            unresolved_jumps: self.unresolved_jumps,
            budget: self.image.budget.clone(),
        }
    }
}

/// Exchanges the first block with block `entry` and mends the successors.
fn move_to_front(blocks: &mut [Block], entry: usize) {
    blocks.swap(0, entry);
    for block in blocks {
        for (successor, _) in &mut block.successors {
            *successor = match *successor {
                0 => entry,
                index if index == entry => 0,
                index => index,
            };
        }
    }
}

/// Whether it reads the stack protector's canary, which the x86-64 ABI of Linux has at `%fs:0x28`.
fn is_canary(instruction: &Instruction) -> bool {
    instruction.memory_segment() == Register::FS
        && instruction.memory_displacement64() == 0x28
        && instruction.memory_base() == Register::None
}

/// Whether its memory operand is a stack slot.
fn on_stack(instruction: &Instruction) -> bool {
    matches!(instruction.memory_base(), Register::RSP | Register::RBP)
}

fn falls_through(image: &Image<'_>, instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::IndirectCall => true,
        FlowControl::Call => !is_noreturn(image, instruction) && !is_last(image, instruction),
        _ => instruction.mnemonic() == Mnemonic::Syscall,
    }
}

fn is_noreturn(image: &Image<'_>, call: &Instruction) -> bool {
    image
        .function_name(call.near_branch_target())
        .is_some_and(|name| NORETURN.contains(&name))
}

/// Whether what the unwind tables' entry covers ends behind the instruction.
fn is_last(image: &Image<'_>, instruction: &Instruction) -> bool {
    let frame = image.frames().at(instruction.ip());
    frame.is_some_and(|frame| frame.end == instruction.next_ip())
}

/// Whether a direct jump goes to the beginning of another function.
fn is_tail_call(image: &Image<'_>, entry: u64, jump: &Instruction) -> bool {
    let target = jump.near_branch_target();
    target != entry && image.is_function(target)
}
