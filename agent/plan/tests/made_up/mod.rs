//! A traced function that only tests trace: `made_up()` in `fixtures/made_up.c`.

use evictscope_plan::{Analysis, Calls, Description, Execution, FunctionKind, Item, Reason, Traced, TracedFunction};

/// The function: it has a symbol, and calls that do nothing are not told apart from the others.
pub const MADE_UP: Traced = Traced {
    description: &Description { kind: "made_up_call", prefix: "made_up", inner: None, exit: "end" },
    texts: &[],
    plan,
};

fn plan(analysis: &mut Analysis<'_, '_>, kind: FunctionKind) -> Option<TracedFunction> {
    let Some(symbol) = analysis.image.symbols.function("made_up") else {
        analysis.miss(Item::Function(kind), Reason::Unrecognised("no such symbol"));
        return None;
    };
    let (mut function, code) = analysis.begin(kind, "made_up", symbol.address)?;
    let mut execution = Execution::run(&code);
    function.span.exits = analysis.exits(kind, &mut execution, Calls::ALL, &[0, 1]);
    Some(function)
}
