//! The expire cycle: `activeExpireCycle()`.

use crate::item::{Description, FunctionKind};
use crate::plan::TracedFunction;
use crate::traced::analysis::{Analysis, Traced};

/// The expire cycle.
pub const EXPIRE_CYCLE: Traced = Traced {
    description: &Description {
        kind: "expire_cycle",
        prefix: "expire",
        inner: Some("start"),
        exit: "end",
        quantities: &[],
    },
    texts: &[],
    plan,
};

fn plan(_: &mut Analysis<'_, '_>, _: FunctionKind) -> Option<TracedFunction> {
    None
}
