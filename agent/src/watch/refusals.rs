//! Reads how many commands a server has refused because its memory was full: it counts each kind of error that it
//! answers, by the first word of the error, in a radix tree, which `server.errors` points to. `INFO errorstats` prints
//! it.

use crate::keys::Memory;

/// The error that says so.
const FULL: &[u8] = b"OOM";
/// The only entry once errors are no longer counted, because scripts have answered too many kinds of them.
const DISABLED: &[u8] = b"ERRORSTATS_DISABLED";
/// The most children of a node, one for each byte, or letters in one: an error's first word has fewer.
const MOST: usize = 256;
/// The most nodes that are added up in a search.
const NODES: u32 = 4_096;
/// Bytes of `server` that are searched, before and behind its first known member.
const AROUND: [u64; 2] = [512, 1_024];

/// Returns how many commands were refused, from the tree whose address is at `errors`. Returns `None` if that is not
/// known: the server does not count them, or changes the tree just now.
pub fn count(memory: &Memory, errors: u64) -> Option<u64> {
    let head = || Some((memory.u64(errors)?, memory.words::<3>(memory.u64(errors)?)?));
    let before = head()?;
    let (_, [first, ..]) = before;
    let found = match find(memory, first, FULL)? {
        // The tree may not have been made since errors were counted.
        None => find(memory, first, DISABLED)?.is_none().then_some(0),
        Some(counter) => Some(memory.u64(counter)?),
    };
    // Entries are only ever added, and the tree is replaced as a whole.
    found.filter(|_| head() == Some(before))
}

/// Finds where `server` has the address of its tree, if no layout says so: the only one around its first known member
/// that adds up to as many errors of all kinds as it has answered: that was `errors`, and is at `all` now.
pub fn search(memory: &Memory, first_member: u64, errors: u64, all: u64) -> Option<u64> {
    let [before, behind] = AROUND;
    let begin = first_member.checked_sub(before)? & !7;
    let mut nodes = NODES;
    let sums = (begin..first_member + behind)
        .step_by(8)
        .filter_map(|at| Some((at, sum(memory, memory.u64(memory.u64(at)?)?, &mut nodes)?)));
    let sums: Vec<(u64, u64)> = sums.collect();
    let errors = errors..=memory.u64(all)?;
    let mut found = sums.iter().filter(|(_, sum)| errors.contains(sum));
    let (at, _) = found.next().filter(|_| found.next().is_none())?;
    Some(*at)
}

struct Node {
    /// The first letters of what is below each child; or all that leads to the only child.
    letters: Vec<u8>,
    is_word: bool,
    /// Where the addresses of its children are, and how many there are.
    children: (u64, u64),
    /// Where the value of the entry that ends here is.
    value: Option<u64>,
}

impl Node {
    fn read(memory: &Memory, node: u64) -> Option<Self> {
        let head = memory.u32(node)?;
        let size = (head >> 3) as usize;
        let mut letters = vec![0; Some(size).filter(|size| *size <= MOST)?];
        memory.fill(node.checked_add(4)?, &mut letters)?;
        let begin = node + (4 + size as u64).next_multiple_of(8);
        let is_word = head & 4 != 0;
        let children = if is_word { 1 } else { size as u64 };
        let has_value = head & 3 == 1;
        let value = has_value.then(|| memory.u64(begin + 8 * children));
        Some(Self {
            letters,
            is_word,
            children: (begin, children),
            value: value.map_or(Some(None), |value| value.map(Some))?,
        })
    }
}

/// Returns where the value of an entry is. The outer `None` means that this is no tree.
fn find(memory: &Memory, first: u64, name: &[u8]) -> Option<Option<u64>> {
    let (mut node, mut rest) = (Node::read(memory, first)?, name);
    loop {
        let Some((letter, behind)) = rest.split_first() else { return Some(node.value) };
        let way = match node.is_word {
            true => rest.strip_prefix(&*node.letters).map(|behind| (0, behind)),
            false => {
                let child = node.letters.iter().position(|first| first == letter);
                child.map(|child| (child as u64, behind))
            }
        };
        // A word has letters, so there is an end.
        let Some((child, behind)) = way.filter(|(_, behind)| behind.len() < rest.len()) else { return Some(None) };
        (node, rest) = (Node::read(memory, memory.u64(node.children.0 + 8 * child)?)?, behind);
    }
}

/// Adds up the values of a tree of words, of this many nodes at most. Returns `None` if it is none.
fn sum(memory: &Memory, node: u64, nodes: &mut u32) -> Option<u64> {
    *nodes = nodes.checked_sub(1)?;
    let node = Node::read(memory, node)?;
    let is_text = node.letters.iter().all(u8::is_ascii_graphic);
    let mut all = if let Some(value) = node.value { memory.u64(value)? } else { 0 };
    let (begin, children) = node.children;
    for child in 0..Some(children).filter(|_| is_text)? {
        all = all.checked_add(sum(memory, memory.u64(begin + 8 * child)?, nodes)?)?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::{Memory, count, search};

    /// An entry of a tree: its name, and its count.
    type Entry = (&'static str, u64);

    /// Makes a node, with the letters behind its head, and then these words.
    fn node(flags: u32, letters: &[u8], words: &[u64]) -> u64 {
        let head = (letters.len() as u32) << 3 | flags;
        let mut bytes = [&head.to_ne_bytes(), letters].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        words.leak().as_ptr() as u64
    }

    /// Makes the node of these entries, sorted, whose names share this many letters.
    fn tree(entries: &[Entry], shared: usize) -> u64 {
        let (word, others) = match entries {
            [(name, value), others @ ..] if name.len() == shared => (Some(*value), others),
            _ => (None, entries),
        };
        let value: Vec<u64> = word.iter().map(|value| Box::leak(Box::new(*value)) as *const u64 as u64).collect();
        let flags = u32::from(word.is_some());
        let letter = |entry: &Entry| entry.0.as_bytes()[shared];
        let groups: Vec<_> = others.chunk_by(|entry, next| letter(entry) == letter(next)).collect();
        match &groups[..] {
            [] => node(flags, b"", &value),
            [group] => {
                let (first, last) = (group[0].0.as_bytes(), group[group.len() - 1].0.as_bytes());
                let until = (shared..first.len()).find(|at| last.get(*at) != Some(&first[*at])).unwrap_or(first.len());
                let child = tree(group, until);
                node(flags | 4, &first[shared..until], &[&[child][..], &value].concat())
            }
            groups => {
                let letters: Vec<u8> = groups.iter().map(|group| letter(&group[0])).collect();
                let children = groups.iter().map(|group| tree(group, shared + 1));
                node(flags, &letters, &[&children.collect::<Vec<_>>()[..], &value].concat())
            }
        }
    }

    fn counted(entries: &[Entry]) -> Option<u64> {
        let head = [tree(entries, 0), entries.len() as u64, 9];
        let errors = head.as_ptr() as u64;
        count(&Memory::open(std::process::id(), crate::keys::Walk::Tables).ok()?, &raw const errors as u64)
    }

    #[test]
    fn the_count_of_refusals_is_that_of_their_error() {
        let trees: [(&[Entry], _); 8] = [
            (&[], Some(0)),
            (&[("ERR", 7)], Some(0)),
            (&[("OOM", 3)], Some(3)),
            (&[("ERR", 7), ("NOSCRIPT", 2), ("OOM", 3), ("WRONGTYPE", 1)], Some(3)),
            (&[("O", 1), ("OO", 2), ("OOM", 3), ("OOMX", 4)], Some(3)),
            (&[("OOMX", 4)], Some(0)),
            (&[("OOPS", 4), ("OUT", 5)], Some(0)),
            (&[("ERRORSTATS_DISABLED", 1)], None),
        ];
        for (entries, expected) in trees {
            assert_eq!(counted(entries), expected, "{entries:?}");
        }
    }

    #[test]
    fn the_tree_is_found_by_what_it_adds_up_to() -> anyhow::Result<()> {
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables)?;
        let head = |entries: &[Entry]| [tree(entries, 0), entries.len() as u64, 9];
        let errors = head(&[("ERR", 7), ("OOM", 3), ("WRONGTYPE", 1)]);
        let clients = head(&[("\0\0\u{7}", 11)]);
        let mut server = vec![0_u64; 256];
        server[90] = clients.as_ptr() as u64;
        server[100] = errors.as_ptr() as u64;
        let address = |word: usize| server.as_ptr() as u64 + 8 * word as u64;
        let found = |member, errors: u64, now: u64| search(&memory, address(member), errors, &raw const now as u64);
        assert_eq!(found(110, 11, 11), Some(address(100)));
        assert_eq!(found(110, 9, 12), Some(address(100)));
        assert_eq!(found(110, 12, 12), None);
        assert_eq!(found(165, 11, 11), None, "it is too far away");
        server[101] = errors.as_ptr() as u64;
        let now = 11_u64;
        let two = search(&memory, server.as_ptr() as u64 + 880, 11, &raw const now as u64);
        assert_eq!(two, None, "there are two");
        Ok(())
    }

    #[test]
    fn what_is_no_tree_says_nothing() {
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables);
        let count = |errors: u64| count(memory.as_ref().ok()?, errors);
        let (huge, lost) = (node(4, &[b'O'; 300], &[8]), node(4, b"OOM", &[8]));
        for first in [0, 8, huge, lost] {
            let head = [first, 1, 2];
            let errors = head.as_ptr() as u64;
            assert_eq!(count(&raw const errors as u64), None, "{first:#x}");
        }
    }
}
