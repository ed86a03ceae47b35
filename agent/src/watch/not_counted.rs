//! Reads how much of a server's memory does not count against `maxmemory` now: what `freeMemoryGetNotCountedMemory()`
//! would return.
//!
//! Not known of it are the buffers of slots that a cluster is moving, which Redis 8.4 and Valkey 9 do not count either.
//!
//! Second observers: `mem_not_counted_for_evict` of `INFO`, and `overhead` at each evicting call. Tests compare with
//! both; nothing does while the agent runs.

use evictscope_model::Member;
use evictscope_plan::ProbePlan;
use evictscope_telemetry::MemberValues;

use crate::keys::Memory;

/// How often it is tried to read what the server is just changing.
const ATTEMPTS: usize = 3;
/// Nothing is read of longer lists: a gigabyte of changes in blocks of 10 MB, and more replicas than one server feeds.
const LONGEST_LIST: u64 = 128;
/// What `getClientOutputBufferMemoryUsage()` adds for each block of replies: a `listNode` and a `clientReplyBlock`.
const OF_A_REPLY: u64 = 24 + 16;

/// Returns it, bytes; `None` if it is not known. `members` have just been read from `memory`, of a server with this
/// plan.
pub fn read(memory: &Memory, members: &MemberValues, plan: &ProbePlan, load_bias: u64) -> Option<u64> {
    let replicas = match members.replicas_not_counted() {
        Some(shared) => shared,
        None => output_buffers(memory, members, plan)?,
    };
    let sum = replicas.checked_add(aof(memory, members, plan, load_bias)?)?;
    (sum <= members.get(Member::UsedMemory)?).then_some(sum)
}

/// Returns what waits to be written to the AOF, bytes.
pub fn aof(memory: &Memory, members: &MemberValues, plan: &ProbePlan, load_bias: u64) -> Option<u64> {
    if members.get(Member::AofEnabled)? == 0 {
        return Some(0);
    }
    let address = plan.member(Member::AofBuf)?.address.at(load_bias).get();
    (0..ATTEMPTS).find_map(|_| aof_buffer(memory, members, address))
}

/// Returns the output buffers of the replicas of a Redis 6.
fn output_buffers(memory: &Memory, members: &MemberValues, plan: &ProbePlan) -> Option<u64> {
    sum_of_list(memory, members.get(Member::Slaves)?, |client| {
        let [list, bytes] = memory.words(client.checked_add(plan.identity.client_replies()?)?)?;
        bytes.checked_add(length(memory, list)?.checked_mul(OF_A_REPLY)?)
    })
}

/// Returns what waits to be written to the AOF, and, in Redis 6, to the process that rewrites it. The server frees a
/// large buffer when it has written it, so what `address` points to must still be there afterwards.
fn aof_buffer(memory: &Memory, members: &MemberValues, address: u64) -> Option<u64> {
    let at = memory.u64(address)?;
    let buffer = memory.string(at)?;
    if memory.u64(address)? != at {
        return None;
    }
    match members.get(Member::AofRewriteBufBlocks) {
        Some(blocks) if members.get(Member::ReplBufferMem).is_none() => {
            let used = |block| memory.u64(block);
            buffer.space.checked_add(sum_of_list(memory, blocks, used)?)
        }
        _ => Some(buffer.allocated()),
    }
}

/// Returns the length of a `list` of adlist.h.
pub fn length(memory: &Memory, list: u64) -> Option<u64> {
    memory.u64(list.checked_add(40)?)
}

/// Adds up something about each value of a `list`; `None` if the list is long, or changes meanwhile.
fn sum_of_list(memory: &Memory, list: u64, of: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let all = length(memory, list).filter(|all| *all <= LONGEST_LIST)?;
    let (mut node, mut sum) = (memory.u64(list)?, 0_u64);
    for _ in 0..all {
        let [_, next, value] = memory.words(node)?;
        sum = sum.checked_add(of(value)?)?;
        node = next;
    }
    (node == 0 && length(memory, list) == Some(all)).then_some(sum)
}
