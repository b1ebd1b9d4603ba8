//! Links debug builds at a fixed address, and tells the program from which commit it is built.

use std::env;
use std::path::Path;

#[path = "build/commit.rs"]
mod commit;

/// Names the commit where the source is no checkout, as for packages.
const GIVEN: &str = "CODEX_MCP_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/commit.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_debug = is("PROFILE", "debug");
    if is_debug && is("CARGO_CFG_TARGET_OS", "linux") {
        fixed_address();
    }
    // A debug build leaves the commit out: each commit would have the program and all of its tests
    // compiled and linked again.
    tell_commit(!is_debug);
}

/// Programs that are not position-independent start in half the time, as nothing in them has to be
/// relocated, and the tests start thousands of them. Releases stay position-independent.
fn fixed_address() {
    println!("cargo::rustc-link-arg-bins=-no-pie");
    println!("cargo::rustc-link-arg-tests=-no-pie");
}

/// Passes the commit on: the given one, or else that of the checkout if `looks`.
fn tell_commit(looks: bool) {
    println!("cargo::rerun-if-env-changed={GIVEN}");
    let given = env::var(GIVEN).ok().filter(|given| !given.is_empty());
    let hash = match given {
        Some(given) => {
            let hash = commit::shortened(&given);
            if hash.is_none() {
                println!("cargo::warning={GIVEN} is no hash of a commit, and is left out");
            }
            hash
        }
        None if looks => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            commit::checked_out(&root).map(|commit| {
                for file in commit.files {
                    println!("cargo::rerun-if-changed={}", file.display());
                }
                commit.hash
            })
        }
        None => None,
    };
    if let Some(hash) = hash {
        println!("cargo::rustc-env=CODEX_MCP_BUILT_FROM={hash}");
    }
}
