//! Links debug builds at a fixed address.

use std::env;

/// Programs that are not position-independent start in half the time, as nothing in them has to be
/// relocated, and the tests start thousands of them. Releases stay position-independent.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
        println!("cargo::rustc-link-arg-tests=-no-pie");
    }
}
