//! Exits of generated functions, passed by calls that go any way through them.

use evictscope_model::FileAddress;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{FoundExit, find};
use crate::code::graph::{BlockId, EdgeKind, FunctionCode};
use crate::code::instruction::address;
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::sites::site::Calls;

/// Bytes of each part of a function: one-byte instructions, and how it continues.
const PART: usize = 8;
const CODE: FileAddress = FileAddress::new(0x1000);

/// How a part continues: it returns, jumps, or jumps if `ZF` is set; and to which part.
type Part = (u8, Index);

fn assemble(parts: &[Part]) -> Vec<u8> {
    let mut code = Vec::new();
    for (place, (kind, to)) in parts.iter().enumerate() {
        let parts = to.index(parts.len() + 1) as i32 - (place as i32 + 1);
        let jump: &[u8] = match kind {
            0 => &[0xc3],
            1 => &[0x90, 0x90, 0x90, 0xe9],
            _ => &[0x90, 0x90, 0x0f, 0x84],
        };
        code.extend_from_slice(jump);
        code.extend_from_slice(&(parts * PART as i32).to_le_bytes());
        code.resize((place + 1) * PART, 0x90);
    }
    code.push(0xc3);
    code
}

/// Returns whether a call that leaves the end of a block in this way ends at an exit there.
fn ends(exit: &FoundExit<()>, kind: EdgeKind) -> bool {
    let way = exit.way.map(|way| way.taken);
    way.is_none_or(|taken| taken == (kind == EdgeKind::Taken))
}

proptest! {
    /// A call that takes an edge ends at one exit after it, whatever its path. One that does not take it reaches no
    /// instruction that has a probe.
    #[test]
    fn calls_pass_one_exit_and_others_no_probe(
        parts in prop::collection::vec((0..4_u8, any::<Index>()), 2..16),
        edge in any::<Index>(),
        ends_at_inner in any::<bool>(),
        turns in prop::collection::vec(any::<bool>(), 400),
    ) {
        let bytes = assemble(&parts);
        let image = Image::of_code(&bytes, CODE);
        let Ok(code) = FunctionCode::decode(&image, CODE) else {
            return Ok(());
        };
        let edges = code.blocks.entries().flat_map(|(id, block)| {
            block.successors.iter().map(move |(to, kind)| (id, *kind, *to))
        });
        let edges: Vec<(BlockId, EdgeKind, BlockId)> = edges
            .filter(|(from, _, to)| {
                code.blocks[*from].successors.len() == 2 && code.blocks[*to].predecessors.len() == 1
            })
            .collect();
        let Some((from, taken, over)) = edges.get(edge.index(edges.len().max(1))).copied() else {
            return Ok(());
        };
        let last = code.blocks[over].instructions.last().map(address);
        let goal = last.filter(|_| ends_at_inner).unwrap_or(code.blocks[over].address());
        let calls = Calls { block: over, by: &[(from, taken)], inner: Some(goal), ends_at_inner, work: &[] };
        let mut execution = Execution::run(&code);
        let Ok(exits) = find(&mut execution, calls, |_, _| ((), 0)) else {
            return Ok(());
        };
        let mut turns = turns.iter();
        while turns.len() > 0 {
            let (mut block, mut is_over, mut hits, mut ended) = (BlockId::ENTRY, 0, 0, 0);
            loop {
                let own = &code.blocks[block];
                let turn = turns.next().map_or(0, |turn| usize::from(*turn));
                let next = own.successors.get(turn.min(own.successors.len().saturating_sub(1)));
                for (index, instruction) in own.instructions.iter().enumerate() {
                    let is_last = index + 1 == own.instructions.len();
                    let here = exits.iter().filter(|exit| exit.instruction.ip() == instruction.ip());
                    for exit in here {
                        hits += 1;
                        ended += usize::from(!is_last || next.is_none_or(|(_, kind)| ends(exit, *kind)));
                    }
                    hits += usize::from(address(instruction) == goal);
                }
                prop_assert!(is_over > 0 || hits == 0, "{:x?}", calls);
                let Some((to, kind)) = next else {
                    prop_assert!(ended == usize::from(is_over > 0), "{:x?}", calls);
                    break;
                };
                is_over += usize::from((block, *kind) == (from, taken));
                block = *to;
                if is_over > 1 || turns.len() == 0 {
                    break;
                }
            }
        }
    }
}
