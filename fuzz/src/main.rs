//! One executable for all fuzz targets. The variable `FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::LazyLock;

use fuzz_targets::{Target, find};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is no target"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
