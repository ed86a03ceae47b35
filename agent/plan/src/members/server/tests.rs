//! Small programs with a configuration table and no `server`.

use evictscope_machine::elf::Image;
use evictscope_model::{FileAddress, Member};
use evictscope_testkit::compiler::compile;

use super::server;
use crate::members::layouts::layouts;
use crate::members::{ConfigTable, MemberError, config_table};
use crate::names::Identity;

/// Compiles a configuration table whose members are where the layout of `release` has them;
/// `server` has no name. `None` if there is no compiler.
fn with_layout(release: &str) -> Option<Vec<u8>> {
    let layouts = layouts().unwrap_or_else(|error| panic!("{error}"));
    let at = |member| layouts[release].offset(member).unwrap_or_default();
    let source = format!(
        "char unnamed[16384] = {{1}};
         struct {{ const char *name; long fill[6]; void *data; }} configs[] = {{
             {{\"port\", {{1}}, unnamed + 4096 + {}}},
             {{\"maxclients\", {{0}}, unnamed + 4096 + {}}},
             {{\"maxmemory\", {{0}}, unnamed + 4096 + {}}},
             {{\"maxmemory-policy\", {{0}}, unnamed + 4096 + {}}},
         }};
         int main(void) {{ return configs[0].fill[0] == (long)unnamed; }}",
        at(Member::Port),
        at(Member::Maxclients),
        at(Member::Maxmemory),
        at(Member::MaxmemoryPolicy)
    );
    compile("gcc", &source, &["-O1"])
}

/// Returns the distance of `server` from where the layout begins, and whether it is exact.
fn server_of(
    data: &[u8],
    identity: &Identity,
    counted: impl Fn(&ConfigTable) -> Vec<FileAddress>,
) -> Result<(u64, bool), MemberError> {
    let image = Image::parse(data).unwrap_or_else(|error| panic!("{error}"));
    let config = config_table(&image)?;
    let begin = image.object("unnamed").map(|symbol| symbol.address).unwrap_or_default();
    let found = server(&image, &config, identity, &counted(&config))?;
    Ok((found.address.wrapping_sub(begin.wrapping_add(4096)), found.is_exact))
}

fn redis(version: &str) -> Identity {
    Identity { product: Some("redis"), version: Some(version.to_owned()), ..Identity::default() }
}

#[test]
fn the_layout_says_where_server_begins() {
    for release in ["redis 7.0.15", "redis 7.2.6", "redis 7.4.1", "valkey 8.0.1"] {
        let Some(data) = with_layout(release) else {
            return;
        };
        let found = server_of(&data, &Identity::default(), |_| Vec::new());
        assert_eq!(found, Ok((0, true)), "{release}");
    }
}

#[test]
fn layouts_that_differ_in_what_is_read_are_refused() {
    // The four directives have the same offsets in 6.0.0 and 6.0.4 to 6.0.6, but the statistics do not.
    let Some(data) = with_layout("redis 6.0.6") else {
        return;
    };
    let found = server_of(&data, &Identity::default(), |_| Vec::new());
    assert!(found.as_ref().is_err_and(|why| why.to_string().contains("redis 6.0.0 and redis 6.0.4")), "{found:?}");
    // The eviction function or the version tells them apart.
    let found = server_of(&data, &Identity::default(), |config| vec![config[&Member::Port].wrapping_add(1184 - 212)]);
    assert_eq!(found, Ok((0, true)));
    assert_eq!(server_of(&data, &redis("6.0.6"), |_| Vec::new()), Ok((0, true)));
}

#[test]
fn layouts_that_differ_only_in_what_lies_before_give_no_offsets() {
    let Some(data) = with_layout("redis 6.0.14") else {
        return;
    };
    // A release whose layout is not known.
    let found = server_of(&data, &redis("6.0.99"), |_| Vec::new());
    assert!(matches!(found, Ok((_, false))), "{found:?}");
    assert_eq!(server_of(&data, &redis("6.0.14"), |_| Vec::new()), Ok((0, true)));
}
