//! Which function is the eviction call: by its symbol, and by the text that it reports its duration
//! under. The latency report mentions that text too, but does not care for `maxmemory-policy`.

use crate::code::graph::FunctionCode;
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::plan::Function;

use crate::code::references;
use crate::names::Texts;

/// Its names, newest first.
pub const NAMES: [&str; 2] = ["performEvictions", "freeMemoryIfNeeded"];
/// What it calls its duration.
pub const TEXT: &str = "eviction-cycle";
/// A directive that Redis has had since the function was renamed.
const SINCE_RENAMED: &str = "maxmemory-eviction-tenacity";
/// Most functions that are looked into.
const MAX_FUNCTIONS: usize = 8;

/// The eviction call. `policy` is the address of `server.maxmemory_policy`.
///
/// # Errors
///
/// Why it cannot be told, or that symbol and text contradict each other, in words.
pub fn eviction_call(
    image: &Image<'_>,
    texts: &Texts,
    policy: Option<u64>,
) -> Result<Function, String> {
    let named = NAMES
        .iter()
        .find_map(|name| Some((*name, image.function(name)?.address)));
    let mentioned = match texts.has(TEXT) {
        true => Some(by_text(image, texts, policy)),
        false => None,
    };
    let (name, address) = match (named, mentioned) {
        (None, None) => {
            return Err(
                "no function called performEvictions or freeMemoryIfNeeded, nor the text \"eviction-cycle\": not a Redis server"
                    .to_owned(),
            );
        }
        (Some(named), None) => named,
        // Without its bounds, or what else to know it by, only the named function itself can be asked.
        (Some((name, address)), Some(_))
            if image.frames().at(address).is_none() || policy.is_none() =>
        {
            let places = texts.places_of(TEXT);
            if !mentions(image, address, |place| places.contains(&place)) {
                return Err(format!(
                    "{name} is at {address:#x}, but does not mention the text \"eviction-cycle\""
                ));
            }
            (name, address)
        }
        (None, Some(mentioned)) => {
            let is_renamed = !image.find_string(SINCE_RENAMED).is_empty();
            (NAMES[usize::from(!is_renamed)], mentioned?)
        }
        (Some((name, address)), Some(mentioned)) => {
            let mentioned =
                mentioned.map_err(|why| format!("{name} is at {address:#x}, but {why}"))?;
            if mentioned != address {
                return Err(format!(
                    "{name} is at {address:#x}, but the function that reports its duration as \"eviction-cycle\" is at {mentioned:#x}"
                ));
            }
            (name, address)
        }
    };
    Ok(Function {
        name: name.to_owned(),
        address,
    })
}

/// The one function that mentions the text and reads the policy.
fn by_text(image: &Image<'_>, texts: &Texts, policy: Option<u64>) -> Result<u64, String> {
    let policy = policy.ok_or(
        "there is no table of configuration directives with maxmemory-policy, by which the function that mentions the text \"eviction-cycle\" could be recognised",
    )?;
    let mut functions = texts.functions(image, TEXT);
    functions.truncate(MAX_FUNCTIONS);
    functions.retain(|function| reads(image, *function, policy));
    match functions.as_slice() {
        [only] => Ok(*only),
        [] => Err("no function that the unwind tables (.eh_frame) tell of mentions the text \"eviction-cycle\" and reads maxmemory-policy".to_owned()),
        several => Err(format!(
            "{} functions mention the text \"eviction-cycle\" and read maxmemory-policy",
            several.len()
        )),
    }
}

/// Whether a function reads the global at `address`, by whatever register.
fn reads(image: &Image<'_>, function: u64, address: u64) -> bool {
    mentions(image, function, |mentioned| mentioned == address)
        || FunctionCode::decode(image, function)
            .is_ok_and(|code| Execution::run(&code).atoms.loads(address))
}

/// Whether an instruction of a function mentions such an address.
fn mentions(image: &Image<'_>, function: u64, is_meant: impl Fn(u64) -> bool) -> bool {
    FunctionCode::decode(image, function).is_ok_and(|code| {
        code.blocks
            .iter()
            .flat_map(|block| &block.instructions)
            .any(|instruction| references::mentioned(instruction).any(&is_meant))
    })
}
