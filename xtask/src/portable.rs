//! The tests of processes with `--cfg portable`: with what other systems than Linux have to make do
//! with, see the module `platform` of `supervise`.
//!
//! The wrapper sets the cfg for the crates of the workspace alone, and cargo finds the others where
//! the usual build has put them. What is linked goes to a directory of its own: among it is the
//! executable with the verb `guard`, which the tests of the usual build use meanwhile.
//!
//! Source: The Cargo Book 1.95, "Configuration" (`build.build-dir`).

use std::path::Path;

use crate::tool::{CRATE_COMPILER, Tool};
use crate::workspace::Workspace;

/// The crates that start processes and depend on the system, without those that take long to build.
const CRATES: [&str; 2] = ["safe-files", "supervise"];

/// Runs the tests.
pub(crate) fn tests(workspace: &Workspace) -> Tool {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let wrapper = workspace.root().join("xtask/portable-rustc.sh");
    Tool::cargo(["test"])
        .args(CRATES.into_iter().flat_map(|name| ["--package", name]))
        .env(CRATE_COMPILER, path(&wrapper))
        .env("CARGO_BUILD_BUILD_DIR", path(workspace.target()))
        .env(
            "CARGO_TARGET_DIR",
            path(&workspace.target().join("portable")),
        )
}
