//! Finds which function is the eviction call, by its symbol and by the text under which it reports
//! its duration. The latency report mentions that text too, but does not read `maxmemory-policy`.

use evictscope_machine::code::{FunctionCode, references};
use evictscope_machine::elf::Image;
use evictscope_machine::flow::Execution;
use evictscope_model::FileAddress;

use crate::names::Texts;

/// Its names, newest first.
pub const NAMES: [&str; 2] = ["performEvictions", "freeMemoryIfNeeded"];
/// The text under which it reports its duration.
pub const TEXT: &str = "eviction-cycle";
/// A directive that Redis has had since the function was renamed.
const SINCE_RENAMED: &str = "maxmemory-eviction-tenacity";
/// The most functions that are looked into.
const MAX_FUNCTIONS: usize = 8;

/// Returns name and address of the eviction call. `policy` is the address of `server.maxmemory_policy`.
/// Fails if it is not certain which function it is, or if symbol and text contradict each other.
pub fn eviction_call(
    image: &Image<'_>,
    texts: &Texts,
    policy: Option<FileAddress>,
) -> Result<(&'static str, FileAddress), String> {
    let named = NAMES.iter().find_map(|name| Some((*name, image.function(name)?.address)));
    let mentioned = match texts.has(TEXT) {
        true => Some(by_text(image, texts, policy)),
        false => None,
    };
    match (named, mentioned) {
        (None, None) => {
            Err(format!("no function called {}, nor the text \"{TEXT}\": not a Redis server", NAMES.join(" or ")))
        }
        (Some(named), None) => Ok(named),
        // Without its bounds, or the policy to recognise it by, only the named function itself can be checked.
        (Some((name, address)), Some(_)) if image.frames.at(address).is_none() || policy.is_none() => {
            let places = texts.places_of(TEXT);
            if mentions(image, address, |place| places.contains(&place)) {
                Ok((name, address))
            } else {
                Err(format!("{name} is at {address:#x}, but does not mention the text \"{TEXT}\""))
            }
        }
        (None, Some(mentioned)) => {
            let is_renamed = !image.find_string(SINCE_RENAMED).is_empty();
            Ok((NAMES[usize::from(!is_renamed)], mentioned?))
        }
        (Some((name, address)), Some(mentioned)) => match mentioned {
            Ok(mentioned) if mentioned == address => Ok((name, address)),
            Ok(mentioned) => Err(format!(
                "{name} is at {address:#x}, but the function that reports its duration as \"{TEXT}\" is at {mentioned:#x}"
            )),
            Err(why) => Err(format!("{name} is at {address:#x}, but {why}")),
        },
    }
}

/// Returns the only function that mentions the text and reads the policy.
fn by_text(image: &Image<'_>, texts: &Texts, policy: Option<FileAddress>) -> Result<FileAddress, String> {
    let policy = policy.ok_or_else(|| format!("there is no table of configuration directives with maxmemory-policy, by which the function that mentions the text \"{TEXT}\" could be recognised"))?;
    let mut functions = texts.functions(image, TEXT);
    functions.truncate(MAX_FUNCTIONS);
    functions.retain(|function| reads(image, *function, policy));
    match functions.as_slice() {
        [only] => Ok(*only),
        [] => Err(format!(
            "no function listed in the unwind tables (.eh_frame) mentions the text \"{TEXT}\" and reads maxmemory-policy"
        )),
        several => Err(format!("{} functions mention the text \"{TEXT}\" and read maxmemory-policy", several.len())),
    }
}

/// Returns whether a function reads the global at `address`, through any register.
fn reads(image: &Image<'_>, function: FileAddress, address: FileAddress) -> bool {
    mentions(image, function, |mentioned| mentioned == address)
        || FunctionCode::decode(image, function).is_ok_and(|code| Execution::run(&code).atoms.loads(address))
}

/// Returns whether an instruction of a function mentions such an address.
fn mentions(image: &Image<'_>, function: FileAddress, is_meant: impl Fn(FileAddress) -> bool) -> bool {
    FunctionCode::decode(image, function).is_ok_and(|code| {
        code.blocks
            .iter()
            .flat_map(|block| &block.instructions)
            .any(|instruction| references::mentioned(instruction).any(&is_meant))
    })
}
