//! The hostile fake Codex. What it does is in `testkit::fake`.

use std::process::ExitCode;

fn main() -> ExitCode {
    testkit::fake::run(std::env::args().skip(1).collect())
}
