#!/usr/bin/env bash
# The compiler for `cargo xtask test --only clippy`: what `cargo clippy -- -D warnings` would run, by a
# name that `cargo doc` can be given too (RUSTC_WORKSPACE_WRAPPER). So it finds each crate checked.
# Not by sh, which may drop the variables CARGO_BIN_EXE_* of programs with a hyphen in their names.
exec clippy-driver "$@" -D warnings
