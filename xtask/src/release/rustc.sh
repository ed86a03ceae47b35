#!/bin/sh
# cargo runs this in place of rustc while it builds a release (RUSTC_WRAPPER): in what is compiled, for the kernel
# too, paths of this machine get names that are the same on each.
exec "$@" \
    --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo" \
    --remap-path-prefix="${RUSTUP_HOME:-$HOME/.rustup}=/rustup" \
    --remap-path-prefix="$EVICTSCOPE_CHECKOUT=/evictscope"
