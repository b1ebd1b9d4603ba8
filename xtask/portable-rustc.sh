#!/bin/sh
# The compiler for `cargo xtask test --only portable`: cargo runs it for the crates of the workspace
# alone (RUSTC_WORKSPACE_WRAPPER), so that those of others are not built again.
exec "$@" --cfg portable
